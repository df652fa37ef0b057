"""From alarms on an adopted threshold to findings, hypotheses and the report's table."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from orchestrator import diagnose
from orchestrator.campaign import watched
from orchestrator.nouns import (
    Ablation,
    Arm,
    ClipForecast,
    ClipRatio,
    ClipStage,
    Factor,
    Record,
    Series,
    Telemetry,
    Trial,
)
from orchestrator.report.clip_check import clip_table
from tests import records

ARM = records.WINNER  # stands for the arm that clips at 2
FORECAST = ClipForecast(
    ARM.name,
    2.0,
    (
        ClipStage(100, 599, ClipRatio(0.0, 0.01, 0.03), 1.0, 0.1),
        ClipStage(600, 999, ClipRatio(0.02, 0.05, 0.08), 1.2, 0.1),
    ),
)


def telemetry(seed: int, scale: float = 1.0, n: int = 1000) -> Telemetry:
    steps = np.arange(n)
    norms = scale * np.exp(0.3 * np.random.default_rng(seed).standard_normal(n))
    series = {
        "grad_norm": Series(steps, norms),
        "lr": Series(steps, np.full(n, 0.1)),
        "step_seconds": Series(steps[1:], np.full(n - 1, 0.004 * scale)),
    }
    return Telemetry(series)


def test_trainings_as_predicted_give_no_finding() -> None:
    assert watched.clip_findings(FORECAST, [telemetry(s) for s in range(5)]) == ()
    assert watched.clip_findings(FORECAST, [Telemetry({})] * 3) == ()


def test_a_high_ratio_on_most_seeds_is_a_finding_that_asks_for_lr_and_warmup() -> None:
    high = [telemetry(s, 3.0) for s in range(2)]
    assert watched.clip_findings(FORECAST, [*high, telemetry(2), telemetry(3)]) == ()
    found = watched.clip_findings(FORECAST, [*high, telemetry(2)])
    assert [f.rule for f in found] == ["high_clip_ratio", "gradient_level_rose"]
    first = found[0]
    assert (first.seeds_fired, first.seeds_seen) == (2, 3)
    assert "8% at most were predicted" in first.summary or "3% at most" in first.summary
    assert any(cause.startswith("LR: as in the calibration") for cause in first.confounders)
    factors = [Factor(name, name, 0.1) for name in ("clip", "warmup", "lr")]
    raised, untestable = diagnose.hypothesise(found, factors)
    assert [h.factor for h in raised] == ["lr", "warmup"]
    assert untestable == ()


def test_a_threshold_that_does_nothing_and_norms_that_broke_are_findings() -> None:
    quiet = watched.clip_findings(FORECAST, [telemetry(s, 0.2) for s in range(3)])
    assert [f.rule for f in quiet] == ["inert_clip"]
    broken = telemetry(0)
    broken["grad_norm"].values[500:520] = np.nan
    (found,) = watched.clip_findings(FORECAST, [broken])
    assert (found.rule, found.steps) == ("non_finite_streak", (500, 519))


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """A round that tested `clip` beside what it did."""
    done = records.finished(tmp_path)
    turn = done.rounds[0]
    assert turn.plan is not None
    claim = dataclasses.replace(turn.plan.ablations[0].hypothesis, factor="clip")
    ablation = Ablation("clip", claim, Factor("clip", "clip", None), (ARM,))
    plan = dataclasses.replace(turn.plan, ablations=(ablation,), clipping=(FORECAST,))
    pairs = [
        records.trial(arm, seed, tmp_path, 0.0)
        for arm in (plan.baseline, ARM)
        for seed in plan.seeds
    ]
    return dataclasses.replace(
        done,
        rounds=(dataclasses.replace(turn, plan=plan),),
        trials={t.identity: t for t, _ in pairs},
        outcomes={o.identity: o for _, o in pairs},
    )


def test_the_forecast_of_an_adopted_arm_is_found_by_what_it_changes(record: Record) -> None:
    assert watched.forecast_of(record, dataclasses.replace(ARM, name="baseline")) == FORECAST
    assert watched.forecast_of(record, Arm("baseline", (("clip", 3.0),))) is None
    assert watched.forecast_of(record, Arm("baseline")) is None


def test_the_table_sets_realised_beside_predicted_and_tells_throughput(record: Record) -> None:
    plan = record.rounds[0].plan
    assert plan is not None

    def read(trial: Trial) -> Telemetry:
        return telemetry(trial.seed, 1.25 if trial.arm == ARM.name else 1.0)

    table = clip_table(record, plan, plan.ablations[0], read)
    assert table is not None
    baseline, arm = table.rows
    realised = np.mean([
        np.mean(telemetry(t.seed, 1.25)["grad_norm"].values[100:] > 2.0)
        for t, o in record.of(ARM, plan.seeds)
        if o.status.is_result
    ])  # fmt: skip
    assert baseline == ("baseline", "-", "-", "-", "250", "+0 %")
    assert arm == (ARM.name, "2.8% (0.9% to 5.2%)", f"{realised:.1%}", "no", "200", "-20 %")
    other = dataclasses.replace(plan.ablations[0], name="lr")
    assert clip_table(record, plan, other, read) is None
    assert clip_table(record, plan, plan.ablations[0], lambda _: None) is None
