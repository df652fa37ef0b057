from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from orchestrator.clip_nouns import ClipAlarm, NormSeries, Proposal
from orchestrator.errors import OrchestratorError
from orchestrator.plan.clip.proposal import propose
from orchestrator.plan.clip.watching import WINDOW, watch

LR = 1e-3


def norms(seed: int, n: int) -> np.ndarray:
    return np.exp(0.2 * np.random.default_rng(seed).standard_normal(n))


def series(values: np.ndarray, *, lr: float = LR, scale: np.ndarray | None = None) -> NormSeries:
    n = len(values)
    return NormSeries(
        np.arange(n), values, loss=np.linspace(3, 1, n), lr=np.full(n, lr), loss_scale=scale
    )


@pytest.fixture(scope="module")
def proposal() -> Proposal:
    values = norms(0, 1500)
    values[[300, 700, 900, 1200]] *= 40
    return propose(
        series(values), optimizer="SGD", n_parameters=None, horizon=None, current=None,
        rng=np.random.default_rng(0),
    )  # fmt: skip


def kinds(alarms: tuple[ClipAlarm, ...]) -> list[str]:
    return [a.kind for a in alarms]


def test_no_healthy_training_of_a_hundred_raises_an_alarm(proposal: Proposal) -> None:
    assert not any(watch(proposal, series(norms(seed, 1500))) for seed in range(1, 101))


def high(values: np.ndarray) -> np.ndarray:
    values[600:1200] *= 2.5
    return values


def inert(values: np.ndarray) -> np.ndarray:
    values[600:] *= 0.3
    return values


def risen(values: np.ndarray) -> np.ndarray:
    values[600:] *= 1.35
    return values


def broken(values: np.ndarray) -> np.ndarray:
    values[605:620] = np.nan
    return values


@pytest.mark.parametrize(
    ("fault", "kind"), [(high, "high"), (inert, "inert"), (risen, "drift"), (broken, "nonfinite")]
)
def test_each_fault_raises_its_alarm_where_it_is(
    fault: Callable[[np.ndarray], np.ndarray], kind: str, proposal: Proposal
) -> None:
    alarms = [a for a in watch(proposal, series(fault(norms(7, 1500)))) if a.kind == kind]
    assert len(alarms) == 1
    assert 600 <= alarms[0].first < 600 + WINDOW
    assert alarms[0].last >= 619


def test_one_bad_window_and_a_search_for_the_loss_scale_are_no_alarm(proposal: Proposal) -> None:
    values = norms(8, 1500)
    values[600 : 600 + WINDOW] *= 3
    values[:9] = np.inf
    assert watch(proposal, series(values)) == ()


def test_causes_say_what_the_record_says_and_never_to_raise_the_threshold(
    proposal: Proposal,
) -> None:
    values = high(norms(9, 1500))
    scale = np.full(1500, 1024.0)
    alarm = watch(proposal, series(values, lr=3 * LR, scale=scale))[0]
    told = " | ".join(alarm.causes)
    assert "LR: 0.003, calibrated at 0.001" in told
    assert "clipped steps 600" in told
    assert "loss scale 1.02e+03 to 1.02e+03" in told
    assert "batch size" in told
    assert "raise" not in told


def test_an_unknown_candidate_is_told_with_the_valid_ones(proposal: Proposal) -> None:
    with pytest.raises(OrchestratorError, match="standard"):
        watch(proposal, series(norms(1, 300)), adopted="standrad")


def test_a_series_shorter_than_two_windows_raises_nothing(proposal: Proposal) -> None:
    assert watch(proposal, series(5 * norms(1, 200))) == ()
