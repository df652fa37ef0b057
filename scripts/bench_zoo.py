"""The fault zoo: what the rules tell of small trainings whose health is known, beside other tools.

    scripts/bench zoo [SEEDS] [--folder FOLDER]

Trains each scenario of scripts/zoo on SEEDS seeds (5), two processes of one thread; recordings are
kept below FOLDER by a hash of the code that made them, so that rules can be tried again in seconds.
Thresholds were tuned on the families named in scripts/zoo/scenarios.py alone; 95 % intervals.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from intervals import wilson
from zoo.runs import recordings
from zoo.scenarios import SCENARIOS, WATCH, Scenario

from orchestrator.diagnose import diagnose
from orchestrator.nouns import Telemetry

Recordings = Mapping[str, Sequence[Telemetry | str]]
Told = Mapping[str, Sequence[Sequence[str]]]
"""For each scenario, what was told on each seed, the first cause first."""


def told(recorded: Sequence[Telemetry | str]) -> list[list[str]]:
    """Rules that fired on each seed alone, roots first."""
    return [
        [WATCH] if isinstance(t, str) else [finding.rule for finding in diagnose([t])]
        for t in recorded
    ]


def together(recorded: Sequence[Telemetry | str]) -> list[str]:
    """Rules that fired on all seeds taken together, roots first."""
    telemetries = [t for t in recorded if isinstance(t, Telemetry)]
    return [f.rule for f in diagnose(telemetries)] if telemetries else [WATCH]


def table(scenarios: Sequence[Scenario], found: Told, recorded: Recordings) -> Iterator[str]:
    yield "| family | training | must be told first | told first | told of all seeds |"
    yield "|---|---|---|---|---|"
    for s in scenarios:
        first = Counter(rules[0] if rules else "-" for rules in found[s.name])
        counts = ", ".join(f"{rule} {n}" for rule, n in first.most_common())
        all_seeds = ", ".join(together(recorded[s.name])) or "-"
        wanted = " or ".join(s.expected) or "-"
        yield f"| {s.family} | {s.name} | {wanted} | {counts} | {all_seeds} |"


def figures(scenarios: Sequence[Scenario], found: Told) -> Iterator[str]:
    """Rates over single seeds."""
    faults = [(s, rules) for s in scenarios for rules in found[s.name] if not s.is_healthy]
    healthy = [rules for s in scenarios for rules in found[s.name] if s.is_healthy]
    right = [[rule in s.expected for rule in rules] for s, rules in faults]
    yield "| | | 95 % interval |"
    yield "|---|---|---|"
    yield f"| healthy runs with a finding | {rate(sum(map(bool, healthy)), len(healthy))} |"
    yield f"| faults detected | {rate(sum(bool(r) for _, r in faults), len(faults))} |"
    yield f"| right cause first | {rate(sum(r[:1] == [True] for r in right), len(right))} |"
    yield f"| right cause among three | {rate(sum(any(r[:3]) for r in right), len(right))} |"


def rate(count: int, n: int) -> str:
    """A rate with its 95 % interval."""
    low, high = wilson(count, n)
    return f"{count}/{n} | {low:.3f} to {high:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("seeds", nargs="?", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "zoo")
    options = parser.parse_args()
    recorded = recordings(SCENARIOS, options.seeds, folder=options.folder)
    found = {name: told(of) for name, of in recorded.items()}
    for title, is_tuned in (("Tuned families", True), ("Held-out families", False)):
        scenarios = [s for s in SCENARIOS if s.is_tuned is is_tuned]
        print(f"\n## {title}\n")
        for line in (*table(scenarios, found, recorded), "", *figures(scenarios, found)):
            print(line)


if __name__ == "__main__":
    main()
