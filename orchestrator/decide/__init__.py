"""Comparisons -> Verdicts, with the reason in numbers and the next act. See docs/statistics.md."""

from orchestrator.decide.hypotheses import support
from orchestrator.decide.verdicts import candidate, confirmed, judge, ranking

__all__ = ["candidate", "confirmed", "judge", "ranking", "support"]
