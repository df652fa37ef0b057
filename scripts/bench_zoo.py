"""The fault zoo: what the rules tell of small trainings whose health is known, beside other tools.

    scripts/bench zoo [SEEDS] [--folder FOLDER] [--page PAGE]

Trains each scenario of scripts/zoo on SEEDS seeds (5), two processes of one thread; recordings are
kept below FOLDER by a hash of the code that made them, so that rules can be tried again in seconds.
Thresholds were tuned on the families named in scripts/zoo/table.py alone; 95 % Wilson intervals.
With --page the tables replace those between the marks in docs/diagnosis.md.
"""

from __future__ import annotations

import argparse
import inspect
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from intervals import wilson
from zoo.peers import PEERS
from zoo.runs import recordings
from zoo.scenarios import SCENARIOS
from zoo.table import WATCH, Scenario

from orchestrator.diagnose import RULES, diagnose
from orchestrator.diagnose.hypotheses import TABLE
from orchestrator.diagnose.remedies import REMEDIES
from orchestrator.diagnose.synthetic import without
from orchestrator.nouns import Telemetry

Recordings = Mapping[str, Sequence[Telemetry | str]]
Told = Mapping[str, Sequence[Sequence[str]]]
"""For each scenario, what was told on each seed, the first cause first."""

MARKS = "<!-- begin: scripts/bench zoo -->", "<!-- end: scripts/bench zoo -->"


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


def figures(scenarios: Sequence[Scenario], found: Told, recorded: Recordings) -> Iterator[str]:
    """Rates over single seeds, and over all of a training's seeds taken together."""
    everything = {s.name: [together(recorded[s.name])] for s in scenarios}
    yield "| | single seeds | 95 % interval | all seeds together | 95 % interval |"
    yield "|---|---|---|---|---|"
    names = ("healthy with a finding", "faults detected", "right cause first", "among three")
    single, joint = counts(scenarios, found), counts(scenarios, everything)
    for name, one, all_ in zip(names, single, joint, strict=True):
        yield f"| {name} | {rate(*one)} | {rate(*all_)} |"


def counts(scenarios: Sequence[Scenario], found: Told) -> list[tuple[int, int]]:
    """False alarms of healthy runs; faults detected, told first, told among the first three."""
    healthy = [rules for s in scenarios for rules in found[s.name] if s.is_healthy]
    faults = [(s, rules) for s in scenarios for rules in found[s.name] if not s.is_healthy]
    right = [[rule in s.expected for rule in rules] for s, rules in faults]
    n = len(faults)
    return [
        (sum(map(bool, healthy)), len(healthy)),
        (sum(map(bool, right)), n),
        (sum(r[:1] == [True] for r in right), n),
        (sum(any(r[:3]) for r in right), n),
    ]


LESS = {
    "everything": (),
    "level default: no zero shares": ("grad_zeros/",),
    "no probe set": ("probe/", "logit_", "log_z", "dead_units/", "eval_inconsistency"),
    "nothing about layers": ("grad_norm/", "param_norm/", "update_", "grad_", "activation_"),
    "what nobody but the user can log left out": (
        *("train/label_entropy", "val/recall_rare", "val/duplicates", "probe/attention_entropy"),
    ),
}
"""What may be missing from a recording, by prefix of its series."""


def with_less(recorded: Recordings) -> Iterator[str]:
    """The same figures where less was recorded, over all families."""
    figures = "healthy with a finding | 95 % interval | right cause first | 95 % interval"
    yield f"| recorded | {figures} |"
    yield "|---|---|---|---|---|"
    for name, prefixes in LESS.items():
        found = {
            scenario: told([t if isinstance(t, str) else without(t, *prefixes) for t in of])
            for scenario, of in recorded.items()
        }
        alarms, _, first, _ = counts(SCENARIOS, found)
        yield f"| {name} | {rate(*alarms)} | {rate(*first)} |"


def peers(scenarios: Sequence[Scenario], recorded: Recordings) -> Iterator[str]:
    """Other tools' published rules on the same recordings: a set fires if any of its rules does."""
    flags = "faulty runs flagged | 95 % interval | healthy runs flagged | 95 % interval"
    yield f"| rule set | {flags} | balanced accuracy |"
    yield "|---|---|---|---|---|---|"
    runs = [
        (s.is_healthy, t) for s in scenarios for t in recorded[s.name] if isinstance(t, Telemetry)
    ]
    sets = {**PEERS, "orchestrator": lambda telemetry: bool(diagnose([telemetry]))}
    for name, fires in sets.items():
        flagged = {
            kind: [fires(t) for healthy, t in runs if healthy is kind] for kind in (False, True)
        }
        hits, alarms = (rate(sum(flagged[kind]), len(flagged[kind])) for kind in (False, True))
        hit, alarm = (sum(flagged[kind]) / len(flagged[kind]) for kind in (False, True))
        yield f"| {name} | {hits} | {alarms} | {(hit + 1 - alarm) / 2:.2f} |"


def calibration(found: Told) -> Iterator[str]:
    """Each rule as its docstring tells it, with what it did on the zoo."""
    says = "fires when | thresholds and source | does not fire on | then"
    yield f"| rule | {says} | healthy runs told so | 95 % interval | told first of its faults |"
    yield "|---|---|---|---|---|---|---|---|"
    healthy = [rules for s in SCENARIOS for rules in found[s.name] if s.is_healthy]
    for name, rule in RULES.items():
        definition, source, exclusions = told_by(inspect.getdoc(rule.check) or "")
        mine = [rules for s in SCENARIOS for rules in found[s.name] if name in s.expected]
        first = f"{sum(rules[:1] == [name] for rules in mine)}/{len(mine)}" if mine else "-"
        alarms = rate(sum(name in rules for rules in healthy), len(healthy))
        asked = dict.fromkeys(f"{r.factor} {r.move.value}" for r in TABLE.get(name, ()))
        then = "; ".join([*([REMEDIES[name]] if name in REMEDIES else []), *asked])
        cells = (f"`{name}`", definition, source, exclusions, then, alarms, first)
        yield f"| {' | '.join(cells)} |"


def told_by(doc: str) -> tuple[str, str, str]:
    """A rule's docstring: its first sentence, thresholds with their source, what is excluded."""
    definition, _, rest = " ".join(doc.split()).partition(". ")
    source, _, exclusions = rest.partition("Excluded: ")
    exclusions, _, more = exclusions.partition(". ")
    definition, source, exclusions = (
        part.strip().rstrip(".").replace("|", "or")
        for part in (definition, source + more, exclusions)
    )
    return definition, source, exclusions


def rate(count: int, n: int) -> str:
    """A rate with its 95 % interval."""
    low, high = wilson(count, n)
    return f"{count}/{n} | {low:.3f} to {high:.3f}"


def report(recorded: Recordings, seeds: int) -> Iterator[str]:
    """All tables, as Markdown."""
    found = {name: told(of) for name, of in recorded.items()}
    yield f"{len(SCENARIOS)} trainings, {seeds} seeds each."
    for title, is_tuned in (("tuned families", True), ("held-out families", False)):
        scenarios = [s for s in SCENARIOS if s.is_tuned is is_tuned]
        yield f"\n### Fault zoo, {title}\n"
        yield from table(scenarios, found, recorded)
        yield ""
        yield from figures(scenarios, found, recorded)
    yield "\n### Where less is recorded, all families\n"
    yield from with_less(recorded)
    yield "\n### Published rules of other tools on the same recordings\n"
    yield from peers(SCENARIOS, recorded)
    yield "\n### Each rule\n"
    yield from calibration(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("seeds", nargs="?", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "zoo")
    parser.add_argument("--page", type=Path, help="write the tables into this page")
    options = parser.parse_args()
    recorded = recordings(SCENARIOS, options.seeds, folder=options.folder)
    text = "\n".join(report(recorded, options.seeds))
    if options.page is None:
        print(text)
    else:
        page, (begin, end) = options.page.read_text(encoding="utf-8"), MARKS
        between = re.compile(f"{re.escape(begin)}.*{re.escape(end)}", re.DOTALL)
        new = between.sub(lambda _: f"{begin}\n{text}\n{end}", page)
        options.page.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
