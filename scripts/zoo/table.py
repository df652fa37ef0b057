"""The rows of the zoo's table: a name, a family, what must be told first, what differs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zoo.training import Setup

TUNED = frozenset(
    {
        "learning rate",
        "loop",
        "structure",
        "initialisation",
        "overfitting",
        "evaluation",
        "clipping",
        "non-finite",
        "optimizers",
        "schedules",
        "small sets",
        "regularised",
    }
)
"""Families in which thresholds were tuned; all others are held out."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way of training; `expected` are the rules of which one must be told first.

    Nothing may be told where `expected` is empty. `WATCH` stands for a mistake that
    `orchestrator.watch` refuses before the first step.
    """

    name: str
    family: str
    expected: tuple[str, ...]
    setup: Setup

    @property
    def is_healthy(self) -> bool:
        return not self.expected

    @property
    def is_tuned(self) -> bool:
        return self.family in TUNED


WATCH = "refused_by_watch"


def row(name: str, family: str, expected: str, **changes: object) -> Scenario:
    setup = replace(Setup(), **changes)  # type: ignore[arg-type]
    return Scenario(name, family, tuple(expected.split()), setup)
