from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from orchestrator.clip_nouns import ClipAlarm, NormSeries
from orchestrator.nouns import ClipForecast
from orchestrator.plan.clip import survey
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
def forecast() -> ClipForecast:
    """Of the candidate standard, from three pilots."""
    values = [norms(10**6 + seed, 1500) for seed in range(3)]
    for v in values:
        v[[300, 700, 900, 1200]] *= 40
    found = survey(
        [series(v) for v in values], optimizer="SGD", n_parameters=None, horizon=None,
        current=None, rng=np.random.default_rng(0),
    )  # fmt: skip
    threshold = next(c.max_norm for c in found.proposal.candidates if c.name == "standard")
    return ClipForecast("clip", threshold, found.stages(threshold))


def kinds(alarms: tuple[ClipAlarm, ...]) -> list[str]:
    return [a.kind for a in alarms]


def test_no_healthy_training_of_a_hundred_raises_an_alarm(forecast: ClipForecast) -> None:
    assert not any(watch(forecast, series(norms(seed, 1500))) for seed in range(1, 101))


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
    fault: Callable[[np.ndarray], np.ndarray], kind: str, forecast: ClipForecast
) -> None:
    alarms = [a for a in watch(forecast, series(fault(norms(7, 1500)))) if a.kind == kind]
    assert len(alarms) == 1
    assert 600 <= alarms[0].first < 600 + WINDOW
    assert alarms[0].last >= 619


def test_one_bad_window_and_a_search_for_the_loss_scale_are_no_alarm(
    forecast: ClipForecast,
) -> None:
    values = norms(8, 1500)
    values[600 : 600 + WINDOW] *= 3
    values[:9] = np.inf
    assert watch(forecast, series(values)) == ()


def test_causes_say_what_the_record_says_and_never_to_raise_the_threshold(
    forecast: ClipForecast,
) -> None:
    values = high(norms(9, 1500))
    scale = np.full(1500, 1024.0)
    alarm = watch(forecast, series(values, lr=3 * LR, scale=scale))[0]
    told = " | ".join(alarm.causes)
    assert "LR: 0.003, calibrated at 0.001" in told
    assert "clipped steps 600" in told
    assert "loss scale 1.02e+03 to 1.02e+03" in told
    assert "batch size" in told
    assert "raise" not in told


def test_the_level_is_compared_with_that_of_the_same_stage(forecast: ClipForecast) -> None:
    falls = np.exp(-np.linspace(0, 1.5, 1500))
    found = survey(
        [series(norms(seed, 1500) * falls) for seed in range(3)], optimizer="SGD",
        n_parameters=None, horizon=None, current=None, rng=np.random.default_rng(0),
    )  # fmt: skip
    drifting = ClipForecast("clip", 0.4, found.stages(0.4))
    ratios = [stage.ratio.median for stage in drifting.stages]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[0] > 0.9
    assert watch(drifting, series(norms(9, 1500) * falls)) == ()
    assert kinds(watch(forecast, series(norms(9, 1500) * falls))) == ["inert"]


def test_what_comes_after_the_forecast_is_not_judged(forecast: ClipForecast) -> None:
    values = norms(9, 3000)
    values[1500:] *= 3
    assert watch(forecast, series(values)) == ()


def test_a_series_shorter_than_two_windows_raises_nothing(forecast: ClipForecast) -> None:
    assert watch(forecast, series(5 * norms(1, 200))) == ()
