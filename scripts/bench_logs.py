"""The rules for foreign logs on synthetic ones: false alarms by rule, labels of planted faults.

`scripts/bench logs` writes every training of orchestrator/diagnose/testing.py as a log of each
step, and of each tenth step, and tells what it is called. Fixed seeds; 95 % Wilson intervals.
`scripts/bench cases FOLDER` measures the same rules on real, labelled logs.
"""

from __future__ import annotations

import zlib
from collections import Counter

import numpy as np
from intervals import wilson

from orchestrator.diagnose.logs import LOG_RULES, diagnose_log
from orchestrator.diagnose.logs.testing import as_log
from orchestrator.diagnose.testing import FAULTS, HEALTHY

DRAWS = 100
EVERY = (1, 10)


def main() -> None:
    """Print three Markdown tables."""
    alarms: Counter[str] = Counter()
    print("| healthy look-alike | called healthy, each step | each tenth | rules that fired |")
    print("|--|--|--|--|")
    for name, draw in HEALTHY.items():
        healthy, rules = [], Counter[str]()
        for every in EVERY:
            found = [diagnose_log(as_log(draw(r), every=every), source=name) for r in rngs(name)]
            healthy.append(sum(d.label == "healthy" for d in found))
            rules += Counter(f.rule for d in found for f in d.findings)
        alarms += rules
        print(f"| {name} | {healthy[0]}/{DRAWS} | {healthy[1]}/{DRAWS} | {listed(rules)} |")
    print("\n| rule | label | false alarms | 95 % interval |\n|--|--|--|--|")
    n = DRAWS * len(EVERY) * len(HEALTHY)
    for name, rule in LOG_RULES.items():
        low, high = wilson(alarms[name], n)
        print(f"| `{name}` | {rule.label} | {alarms[name]}/{n} | {low:.4f} to {high:.4f} |")
    print("\n| fault | called, each step | each tenth |\n|--|--|--|")
    for name, plant in FAULTS.items():
        called = [
            Counter(
                diagnose_log(as_log(plant(r, 1.0), every=every), source=name).label
                for r in rngs(name)
            )
            for every in EVERY
        ]
        print(f"| {name} | {listed(called[0])} | {listed(called[1])} |")


def rngs(name: str) -> list[np.random.Generator]:
    """One generator per draw, the same ones whatever else is measured."""
    return [np.random.default_rng((zlib.crc32(name.encode()), i)) for i in range(DRAWS)]


def listed(counts: Counter[str]) -> str:
    """Names with their counts, frequent ones first."""
    return ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "-"


if __name__ == "__main__":
    main()
