"""Outcomes, or a table of scores -> Comparisons. Formulas: docs/statistics.md."""

from orchestrator.comparison.arms import cells, compare
from orchestrator.comparison.contract import as_json
from orchestrator.comparison.files import from_frame, from_mapping, read_table, table_in
from orchestrator.comparison.table import compare_table

__all__ = [
    "as_json",
    "cells",
    "compare",
    "compare_table",
    "from_frame",
    "from_mapping",
    "read_table",
    "table_in",
]
