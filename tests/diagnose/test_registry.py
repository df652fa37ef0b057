import inspect

import numpy as np

from orchestrator.diagnose import RULES
from orchestrator.diagnose.registry import ANYTHING
from orchestrator.diagnose.testing import HEALTHY

NAMES = {
    "overfitting",
    "plateau",
    "learning_rate_too_low",
    "instability",
    "loss_spikes",
    "non_finite",
    "high_clip_ratio",
    "schedule_collapse",
}
THEMES = {
    *(
        "structure",
        "evaluation",
        "sequences",
        "numerics",
        "data",
        "initialisation",
        "regularisation",
    ),
    *("stability", "depth", "clipping", "optimisation", "generalisation", "throughput"),
}


def test_every_rule_is_registered_once_under_its_name_and_theme():
    assert set(RULES) >= NAMES
    assert {rule.theme for rule in RULES.values()} == THEMES
    assert all(rule.name == rule.check.__name__ for rule in RULES.values())


def test_every_rule_documents_source_and_look_alikes():
    for rule in RULES.values():
        text = inspect.getdoc(rule.check)
        assert "docs/diagnosis.md" in text, rule.name
        assert "Excluded" in text, rule.name


def test_no_rule_reads_the_test_split():
    for rule in RULES.values():
        assert "test/" not in "".join(rule.needs), rule.name
        assert "test/" not in inspect.getsource(inspect.getmodule(rule.check)), rule.name


def test_a_rule_explains_only_rules_that_exist():
    for rule in RULES.values():
        assert set(rule.explains) <= {*RULES, ANYTHING}, rule.name


def test_a_rule_tells_what_it_lacks():
    whole = HEALTHY["plain"](np.random.default_rng(0))
    rule = RULES["learning_rate_too_low"]
    assert rule.lacks(whole) == []
    kept = {n: s for n, s in whole.series.items() if not n.startswith(("update", "probe"))}
    assert rule.lacks(type(whole)(kept)) == ["update_ratio/"]
    kept.pop("train/loss")
    assert rule.lacks(type(whole)(kept)) == ["update_ratio/", "train/loss|probe/loss"]
