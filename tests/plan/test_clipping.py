import dataclasses

import numpy as np
import pytest

from orchestrator.nouns import Arm, Factor, Hypothesis, Move, Series, Telemetry
from orchestrator.plan import asked, plan_round
from orchestrator.plan.clipping import clip_alarms, surveyed, thresholds

N = 1200
LR = Factor("lr", "optimizer.lr", 0.1)
DOWN, EITHER = Move.DOWN, Move.EITHER


def telemetry(seed=0, *, norms=None, loss=None, optimizer="SGD", n=N):
    rng = np.random.default_rng(seed)
    steps = np.arange(n)
    body = np.exp(0.3 * rng.standard_normal(n)) if norms is None else norms
    falls = 0.3 + 2 * np.exp(-steps / 200) + 0.02 * rng.standard_normal(n)
    return Telemetry(
        {
            "grad_norm": Series(steps, body),
            "train/loss": Series(steps, falls if loss is None else loss),
            "lr": Series(steps, np.full(n, 0.1)),
        },
        {"optimizer": optimizer},
    )


def heavy(seed):
    """One batch in 100 is 30 times the others: little of the steps, much of the sum."""
    norms = np.exp(0.3 * np.random.default_rng(seed).standard_normal(N))
    norms[::100] *= 30
    return norms


def drawn(campaign, factors, *telemetries, move=EITHER, ask=(), **others):
    mine = dataclasses.replace(campaign, factors=tuple(factors), ask=ask)
    hypothesis = Hypothesis("instability", "clip", move, "", "", "train_loss", DOWN)
    return plan_round(
        mine, number=1, baseline=Arm("baseline"), hypotheses=[hypothesis],
        telemetries=telemetries, **others,
    )  # fmt: skip


def test_thresholds_are_the_proposed_candidates_of_all_seeds():
    found = surveyed([telemetry(seed) for seed in range(3)])
    assert found.proposal.n_steps == 3 * N
    firm, standard = thresholds(found)
    assert (firm, standard) == pytest.approx(np.exp(0.3 * np.array([1.645, 2.326])), rel=0.05)
    assert surveyed([Telemetry({})]) is None


def test_of_a_training_that_broke_only_what_came_before_counts():
    rng = np.random.default_rng(0)
    norms = np.exp(0.3 * rng.standard_normal(N))
    norms[700:] = 1e-3
    loss = 0.3 + 2 * np.exp(-np.arange(N) / 200)
    loss[700:] = 2.31
    broken = surveyed([telemetry(norms=norms, loss=loss)])
    assert broken.proposal.n_steps == pytest.approx(700, abs=5)
    assert thresholds(broken)[1] == pytest.approx(np.exp(0.3 * 2.326), rel=0.1)
    diverged = np.where(np.arange(N) < 700, loss, np.nan)
    assert surveyed([telemetry(norms=norms, loss=diverged)]).proposal.n_steps == 698


def test_a_training_that_never_learned_gets_no_threshold_and_the_plan_says_why(campaign):
    flat = np.full(N, 2.3)
    plan = drawn(campaign, [Factor("clip", "clip", None)], telemetry(loss=flat))
    assert plan.ablations == ()
    assert "not better than at the start" in plan.notes[0]


def test_the_plan_predicts_the_ratio_of_every_arm_that_clips(campaign):
    three = [telemetry(seed) for seed in range(3)]
    plan = drawn(campaign, [Factor("clip", "clip", 0.9)], *three)
    (ablation,) = plan.ablations
    assert [f.arm for f in plan.clipping] == ["baseline", *(a.name for a in ablation.arms[:-1])]
    assert ablation.arms[-1].name == "clip=none"
    held = []
    for seed, forecast in ((s, f) for s in range(10, 30) for f in plan.clipping):
        is_clipped = telemetry(seed)["grad_norm"].values > forecast.max_norm
        for stage in forecast.stages:
            realised = is_clipped[stage.first : stage.last + 1].mean()
            held.append(stage.ratio.low <= realised <= stage.ratio.high)
        assert clip_alarms(forecast, telemetry(seed)) == ()
    assert np.mean(held) > 0.9


def test_a_threshold_in_the_body_of_sgd_s_norms_gets_its_matched_control(campaign):
    three = [telemetry(seed) for seed in range(3)]
    clip = Factor("clip", "clip", 0.5)
    plan = drawn(campaign, [LR, clip], *three)
    control = plan.ablations[-1]
    assert control.name == "matched_lr"
    (arm,) = control.arms
    expected = np.mean([np.minimum(1, 0.5 / t["grad_norm"].values).mean() for t in three])
    overrides = dict(arm.overrides)
    assert overrides["clip"] is None
    assert overrides["optimizer.lr"] == pytest.approx(0.1 * expected, rel=0.02)
    assert control.factor.moves_with == ("clip",)


@pytest.mark.parametrize(
    ("factors", "optimizer", "norms", "words"),
    [
        ([], "SGD", None, "map lr under factors"),
        ([LR], "SGD", heavy, "in rare steps"),
        ([LR], "AdamW", None, None),
    ],
)
def test_no_control_where_none_can_be_or_need_be(campaign, factors, optimizer, norms, words):
    recorded = [telemetry(s, optimizer=optimizer, norms=norms and norms(s)) for s in range(3)]
    clip = Factor("clip", "clip", None if norms else 0.5)
    plan = drawn(campaign, [*factors, clip], *recorded)
    assert [a.name for a in plan.ablations] == ["clip"]
    assert any(words in note for note in plan.notes) if words else plan.notes == ()


def test_a_control_is_no_more_than_the_declared_ablations_allow(campaign):
    three = [telemetry(seed) for seed in range(3)]
    plan = drawn(campaign, [LR, Factor("clip", "clip", 0.5)], *three, left=1)
    assert [a.name for a in plan.ablations] == ["clip"]


def test_what_the_campaign_asks_for_is_tested_once(campaign):
    mine = dataclasses.replace(campaign, ask=("clip", "lr"))
    assert [h.factor for h in asked(mine, set())] == ["clip", "lr"]
    assert [(h.factor, h.move) for h in asked(mine, {"lr"})] == [("clip", EITHER)]
