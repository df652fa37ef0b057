import numpy as np
import pytest

from orchestrator.diagnose import diagnose, hypothesise
from orchestrator.diagnose.hypotheses import FACTORS, TABLE
from orchestrator.diagnose.testing import FAULTS
from orchestrator.nouns import Factor, Finding, Move, Role, Telemetry
from orchestrator.telemetry import signals

UP, DOWN, EITHER = Move.UP, Move.DOWN, Move.EITHER

MAPPED = tuple(
    Factor(name, f"config.{name}", 0.1)
    for name in ("lr", "weight_decay", "dropout", "warmup", "clip")
)
BATCH = Factor("batch", "config.batch", 32, levels=(16, 64))


def finding(rule, **evidence):
    return Finding(rule, 0.8, f"{rule} it is", (0, 10), evidence=evidence, seeds_seen=5)


def moves(*findings, factors=MAPPED, tried=()):
    raised, _ = hypothesise(findings, factors, tried=tried)
    return [(h.factor, h.move) for h in raised]


def test_overfitting_asks_for_weight_decay_then_dropout():
    assert moves(finding("overfitting")) == [("weight_decay", UP), ("dropout", UP)]


def test_a_hypothesis_carries_claim_reason_and_mechanism():
    raised, _ = hypothesise([finding("overfitting")], MAPPED)
    first = raised[0]
    assert first.claim.startswith("raising weight_decay improves the metric: the gap")
    assert first.why == "overfitting it is (1 of 5 seeds)"
    assert (first.signal, first.signal_move) == ("generalisation_gap", DOWN)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (1e-6, [("lr", UP)]),
        (1e-3, [("lr", EITHER), ("warmup", UP)]),
        (0.05, [("lr", DOWN), ("warmup", UP)]),
        (None, [("lr", EITHER), ("warmup", UP)]),
    ],
)
def test_a_plateau_moves_the_learning_rate_as_its_updates_ask(ratio, expected):
    evidence = {} if ratio is None else {"update_ratio": ratio}
    assert moves(finding("plateau", **evidence)) == expected


def test_updates_too_small_raise_the_learning_rate():
    assert moves(finding("learning_rate_too_low", update_ratio=2e-4)) == [("lr", UP)]


def test_instability_lowers_the_rate_then_warms_up_then_clips():
    expected = [("lr", DOWN), ("warmup", UP), ("clip", DOWN)]
    for rule in ("instability", "loss_spikes", "non_finite"):
        assert moves(finding(rule)) == expected


def test_the_mechanism_of_instability_is_the_early_update_where_it_shows():
    torn, _ = hypothesise([finding("instability", early_update_ratio=0.4)], MAPPED)
    dead, _ = hypothesise([finding("instability", early_update_ratio=0.0)], MAPPED)
    assert torn[0].signal == "early_update_ratio"
    assert dead[0].signal == "train_loss"


def test_a_tight_clip_is_loosened_before_the_rate_is_raised():
    tight = finding("high_clip_ratio", update_ratio=1e-5)
    assert moves(tight) == [("clip", UP), ("lr", UP)]


def test_a_clip_that_hides_large_updates_asks_for_a_lower_rate():
    hiding = finding("high_clip_ratio", update_ratio=0.2)
    assert moves(hiding)[1:] == [("lr", DOWN), ("warmup", UP)]


def test_an_adopted_threshold_that_clips_too_often_is_not_raised():
    unpredicted = finding("high_clip_ratio", clip_ratio=0.4, predicted_high=0.05)
    assert moves(unpredicted) == [("lr", DOWN), ("warmup", UP)]


def test_a_collapsed_schedule_asks_for_the_schedule_if_it_is_mapped():
    collapse = finding("schedule_collapse")
    assert moves(collapse) == [("lr", EITHER)]
    mapped = (*MAPPED, Factor("schedule", "config.schedule", "step", levels=("constant",)))
    assert moves(collapse, factors=mapped) == [("schedule", EITHER), ("lr", EITHER)]


def test_what_was_tried_is_not_proposed_again():
    assert moves(finding("overfitting"), tried={("weight_decay", UP)}) == [("dropout", UP)]
    assert moves(finding("overfitting"), tried={("weight_decay", DOWN)})[0] == ("weight_decay", UP)


def test_two_findings_never_ask_twice_for_the_same():
    both = moves(finding("learning_rate_too_low"), finding("plateau", update_ratio=1e-6))
    assert both == [("lr", UP)]


def test_factors_of_the_user_come_last_for_every_finding():
    factors = (BATCH, *MAPPED)
    assert moves(finding("overfitting"), factors=factors)[-1] == ("batch", EITHER)
    assert moves(finding("plateau"), factors=factors)[-1] == ("batch", EITHER)
    raised, _ = hypothesise([finding("overfitting")], factors)
    assert raised[-1].signal == "generalisation_gap"


def test_a_factor_of_the_user_without_levels_cannot_be_tested():
    bare = Factor("batch", "config.batch", 32)
    raised, untestable = hypothesise([finding("plateau")], (bare,))
    assert raised == ()
    assert "batch has no levels" in untestable[-1]
    assert "factors.batch.levels" in untestable[-1]


def test_what_is_not_mapped_is_told():
    _, untestable = hypothesise([finding("overfitting")], MAPPED[:2])
    assert untestable == (
        "overfitting: dropout is not mapped under factors, so it cannot be tested",
    )
    _, untestable = hypothesise([finding("overfitting")], ())
    assert untestable == (
        "overfitting: nothing known to help is mapped under factors; "
        "map weight_decay or dropout to test it",
    )


def test_fixed_and_nuisance_factors_are_not_varied():
    fixed = (Factor("lr", "config.lr", 0.1, role=Role.FIXED),)
    raised, untestable = hypothesise([finding("learning_rate_too_low")], fixed)
    assert raised == ()
    assert "lr is declared fixed" in untestable[0]


def test_no_finding_no_hypothesis():
    assert hypothesise((), (BATCH, *MAPPED)) == ((), ())


def test_every_row_names_a_factor_and_a_signal_that_exist():
    known = {"generalisation_gap", "train_loss", "clip_ratio", "loss_drop", "loss_spikes"}
    known |= {"update_ratio", "early_update_ratio"}
    rows = [row for rows in TABLE.values() for row in rows]
    assert {row.factor for row in rows} <= FACTORS
    assert {row.signal for row in rows} <= known


def test_every_finding_that_can_fire_has_hypotheses_whose_signal_was_recorded():
    for name, draw in FAULTS.items():
        traces: list[Telemetry] = [draw(np.random.default_rng(i), 0.8) for i in range(3)]
        raised, _ = hypothesise(diagnose(traces), MAPPED)
        assert raised, name
        if name != "non_finite":
            assert all(h.signal in signals(traces[0]) for h in raised), name
