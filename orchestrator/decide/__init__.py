"""Comparisons -> Verdicts, with the reason in numbers and the next act. See docs/statistics.md."""

from orchestrator.decide.hypotheses import support
from orchestrator.decide.looks import at_look
from orchestrator.decide.verdicts import (
    best,
    candidate,
    confirmed,
    confirming_seeds,
    judge,
    ranking,
)

__all__ = [
    "at_look",
    "best",
    "candidate",
    "confirmed",
    "confirming_seeds",
    "judge",
    "ranking",
    "support",
]
