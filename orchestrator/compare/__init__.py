"""Outcomes, or a file of scores -> Comparisons. Formulas: docs/statistics.md."""

from orchestrator.compare.arms import cells, compare
from orchestrator.compare.files import as_json, compare_file

__all__ = ["as_json", "cells", "compare", "compare_file"]
