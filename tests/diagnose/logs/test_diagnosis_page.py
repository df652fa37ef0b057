"""docs/diagnosis.md lists the rules for logs as they are."""

import re
from pathlib import Path

from orchestrator.diagnose.logs import LOG_RULES

PAGE = Path(__file__).parents[3] / "docs" / "diagnosis.md"


def test_the_page_lists_every_rule_for_logs_under_its_label():
    page = PAGE.read_text()
    listed = re.findall(r"^\| `(\w+)` \| (\w+) \| .*\d+/\d+ \|$", page, re.MULTILINE)
    assert dict(listed) == {name: rule.label for name, rule in LOG_RULES.items()}
