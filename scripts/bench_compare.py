"""What `compare` costs: CPU seconds by number of arms, seeds and rows, imports not counted.

    python scripts/bench_compare.py [rows]

Tables of normal scores, runs on one seed correlated by 0.3, a tenth of the arms better by one
standard deviation; the largest has `rows` rows. "read" is from the bytes of a CSV to its cells,
"compare" from there to verdicts. Target: 1,000 arms x 100 seeds under 2 s in all, and time in
proportion to rows.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

import orchestrator
from orchestrator.comparison import table_in

DELTA = 0.5


@dataclass(frozen=True, slots=True)
class Case:
    arms: int
    seeds: int
    delta: float | None = DELTA
    gaps: bool = False


def cases(rows: int) -> tuple[Case, ...]:
    return (
        Case(10, 10),
        Case(1_000, 10),
        Case(1_000, 100, delta=None),
        Case(1_000, 100),
        Case(1_000, 100, gaps=True),
        Case(1_000, rows // 10_000),
        Case(1_000, rows // 1_000),
        Case(rows // 100, 100),
        Case(10, rows // 10),
    )


def csv(case: Case, rng: np.random.Generator) -> bytes:
    seeds = np.sqrt(0.3) * rng.normal(size=case.seeds)
    values = seeds + np.sqrt(0.7) * rng.normal(size=(case.arms + 1, case.seeds))
    values[1 : 1 + case.arms // 10] += 1.0
    lost = rng.random(values.shape) < (0.05 if case.gaps else 0.0)
    lost[0] = False
    lines = ["arm,seed,value,status"]
    for arm, (row, gone) in enumerate(zip(values.tolist(), lost.tolist(), strict=True)):
        name = f"arm{arm}" if arm else "base"
        lines += [
            f"{name},{seed},,missing" if missing else f"{name},{seed},{value},"
            for seed, (value, missing) in enumerate(zip(row, gone, strict=True))
        ]
    return "\n".join(lines).encode()


def measured(case: Case) -> tuple[float, float]:
    """CPU seconds of reading and of comparing."""
    data = csv(case, np.random.default_rng(0))
    began = time.process_time()
    table = table_in(data, "bench")
    read = time.process_time() - began
    orchestrator.compare(table, baseline="base", direction="max", delta=case.delta)
    return read, time.process_time() - began - read


def main(arguments: list[str]) -> None:
    rows = int(arguments[0]) if arguments else 1_000_000
    measured(Case(3, 3))  # imports, and quadrature nodes
    shown = Table("arms", "seeds", "rows", "delta", "read, s", "compare, s")
    for case in cases(rows):
        read, compare = measured(case)
        count = f"{case.arms * case.seeds:,}{', 5 % missing' if case.gaps else ''}"
        delta = "-" if case.delta is None else f"{case.delta}"
        shown.add_row(
            f"{case.arms:,}", f"{case.seeds:,}", count, delta, f"{read:.2f}", f"{compare:.2f}"
        )
    Console(width=100).print(shown)


if __name__ == "__main__":
    main(sys.argv[1:])
