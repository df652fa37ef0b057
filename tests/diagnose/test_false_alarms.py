"""The calibration table of scripts/bench_rules.py in small: silent on health, loud on faults."""

import zlib

import numpy as np
import pytest

from orchestrator.diagnose import RULES, diagnose
from orchestrator.diagnose.synthetic import without
from orchestrator.diagnose.testing import FAULTS, HEALTHY

DRAWS = 30


def rngs(name, count):
    return [np.random.default_rng((zlib.crc32(name.encode()), i)) for i in range(count)]


@pytest.mark.parametrize("name", HEALTHY)
def test_look_alikes_stay_silent(name):
    found = [diagnose([HEALTHY[name](rng)]) for rng in rngs(name, DRAWS)]
    alarms = [finding.rule for findings in found for finding in findings]
    assert len(alarms) <= 1, alarms  # the table: 5 in 5,000


@pytest.mark.parametrize("name", HEALTHY)
def test_look_alikes_stay_silent_over_seeds(name):
    assert diagnose([HEALTHY[name](rng) for rng in rngs(name, 5)]) == ()


@pytest.mark.parametrize("name", FAULTS)
def test_plain_faults_are_told_first_on_every_seed(name):
    findings = diagnose([FAULTS[name](rng, 0.8) for rng in rngs(name, 5)])
    assert findings[0].rule == name
    assert findings[0].seeds_fired >= 4


@pytest.mark.parametrize("name", sorted(set(FAULTS) - {"plateau", "non_finite"}))
def test_detection_grows_with_strength(name):
    def told(strength):
        draws = [diagnose([FAULTS[name](rng, strength)]) for rng in rngs(name, 10)]
        return sum(any(f.rule == name for f in found) for found in draws)

    assert told(0.02) <= told(0.3) <= told(1.0)
    assert told(1.0) >= 8


@pytest.mark.parametrize("prefix", ["probe/", "val/", "update_ratio/", "grad_norm", "lr", "train/"])
def test_no_rule_breaks_or_cries_when_a_series_is_missing(prefix):
    for name, draw in HEALTHY.items():
        (rng,) = rngs(name, 1)
        assert diagnose([without(draw(rng), prefix)]) == (), name


@pytest.mark.parametrize("name", RULES)
def test_no_rule_breaks_on_a_training_that_has_hardly_begun(name):
    whole = HEALTHY["plain"](np.random.default_rng(0))
    for length in (0, 1, 2, 5):
        cut = {n: type(s)(s.steps[:length], s.values[:length]) for n, s in whole.series.items()}
        short = type(whole)(cut, whole.header)
        if not RULES[name].lacks(short):
            assert RULES[name].check(short) is None
        broken = {n: type(s)(s.steps, np.full(len(s), np.nan)) for n, s in cut.items()}
        dead = type(whole)(broken, whole.header)
        if not RULES[name].lacks(dead) and name != "non_finite":
            assert RULES[name].check(dead) is None
