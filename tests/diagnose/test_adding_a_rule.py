"""docs/diagnosis.md: its rule can be added as it stands there, and its table has every rule."""

import re
from pathlib import Path

import numpy as np
import pytest

from orchestrator.diagnose import RULES, diagnose, rule
from orchestrator.diagnose.synthetic import World, edited, simulate
from orchestrator.nouns import Finding, Telemetry
from orchestrator.telemetry.robust import finite

PAGE = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text(encoding="utf-8")


@pytest.fixture
def example():
    (program,) = re.findall(r"```python\n(@rule.*?)```", PAGE, re.DOTALL)
    assert len(program.splitlines()) <= 21
    names = {"rule": rule, "Telemetry": Telemetry, "Finding": Finding, "finite": finite, "np": np}
    exec(program, {**names, "__name__": "example"})
    yield
    del RULES["loss_is_constant"]


@pytest.mark.usefixtures("example")
def test_a_rule_that_was_added_is_asked_for_every_trial():
    plain = simulate(World(floor=2.2, error=0.85, speed=1.0), np.random.default_rng(0))
    constant = edited(plain, "train/loss", lambda v: np.where(np.arange(len(v)) < 400, v, 2.3))
    (finding,) = [f for f in diagnose([constant]) if f.rule == "loss_is_constant"]
    assert finding.summary == "the train loss is 2.3 in every step from 500 on"
    assert not any(f.rule == "loss_is_constant" for f in diagnose([plain]))


def test_the_page_tells_of_every_rule_and_of_no_other():
    table = PAGE.partition("### Each rule")[2].partition("\n#")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(RULES)
