"""Outcomes, or a file of scores -> Comparisons. Formulas: docs/statistics.md."""

from orchestrator.comparison.arms import cells, compare
from orchestrator.comparison.files import as_json, compare_file

__all__ = ["as_json", "cells", "compare", "compare_file"]
