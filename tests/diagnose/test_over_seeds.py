import numpy as np
import pytest

from orchestrator.diagnose import RULES, diagnose, missing
from orchestrator.diagnose.synthetic import World, without
from orchestrator.diagnose.testing import FAULTS, HEALTHY
from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Telemetry


def faulty(name, count, first=0):
    return [FAULTS[name](np.random.default_rng(first + i), 0.8) for i in range(count)]


def healthy(count):
    return [HEALTHY["plain"](np.random.default_rng(i)) for i in range(count)]


def test_a_finding_fires_on_more_than_half_of_the_seeds():
    assert [f.rule for f in diagnose(faulty("overfitting", 3) + healthy(2))] == ["overfitting"]
    assert diagnose(faulty("overfitting", 2) + healthy(2)) == ()
    assert diagnose(faulty("overfitting", 2) + healthy(3)) == ()


def test_the_finding_says_on_how_many_seeds_it_fired():
    (finding,) = diagnose(faulty("overfitting", 3) + healthy(2))
    assert (finding.seeds_fired, finding.seeds_seen) == (3, 5)


def test_what_needs_no_threshold_is_told_from_one_seed():
    findings = diagnose(faulty("non_finite", 1) + healthy(4))
    assert [(f.rule, f.seeds_fired, f.seeds_seen) for f in findings] == [("non_finite", 1, 5)]


def test_evidence_is_the_median_over_seeds_and_the_summary_tells_it():
    traces = faulty("overfitting", 5)
    (finding,) = diagnose(traces)
    each = [diagnose([trace])[0].evidence["accuracy_gap"] for trace in traces]
    assert finding.evidence["accuracy_gap"] == pytest.approx(np.median(each))
    assert f"{np.median(each):.2f} below train" in finding.summary


def test_no_placeholder_is_left_in_any_summary():
    for name in FAULTS:
        for finding in diagnose(faulty(name, 3)):
            assert "{" not in finding.summary
            assert 0 <= finding.severity <= 1


def test_the_order_of_the_seeds_does_not_matter():
    traces = faulty("instability", 4)
    assert diagnose(traces) == diagnose(traces[::-1])


def test_rules_can_be_skipped_and_a_typo_is_told():
    assert diagnose(faulty("overfitting", 3), skip=["overfitting"]) == ()
    with pytest.raises(OrchestratorError, match="did you mean 'overfitting'"):
        diagnose(healthy(1), skip=["overfiting"])


def test_an_explained_finding_is_told_once_its_cause_is_skipped():
    traces = faulty("high_clip_ratio", 3)
    (root,) = diagnose(traces)
    assert root.consequences == ("learning_rate_too_low",)
    (left,) = diagnose(traces, skip=["high_clip_ratio"])
    assert left.rule == "learning_rate_too_low"


def test_nothing_recorded_is_nothing_found():
    assert diagnose([]) == ()
    assert diagnose([Telemetry({})]) == ()


def test_missing_series_are_named():
    bare = [without(t, "val/", "update_ratio/", "lr") for t in healthy(3)]
    sentences = missing(bare)
    assert "cannot tell overfitting from learning: no val/loss" in sentences
    assert any("a learning rate that is too low" in s and "no update_ratio" in s for s in sentences)
    assert any("no lr" in s for s in sentences)


def test_alternatives_are_named_together():
    sentences = missing([without(t, "val/", "train/", "probe/") for t in healthy(1)])
    assert "cannot tell a plateau from slow learning: no train/loss or probe/loss" in sentences


def test_a_series_that_one_seed_has_is_not_missing():
    traces = healthy(2)
    traces[0] = without(traces[0], "val/")
    assert not any("val/loss" in s for s in missing(traces))
    assert missing([]) == ()


def test_every_rule_can_run_on_a_full_recording():
    full = [FAULTS["high_clip_ratio"](np.random.default_rng(0), 0.5)]
    assert all(sentence.startswith("could be told as well") for sentence in missing(full))
    assert World().steps == 1000
    assert len(RULES) >= 8
