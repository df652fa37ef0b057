from __future__ import annotations

import numpy as np
import pytest

from orchestrator.nouns import Series, Telemetry
from orchestrator.track.curves import MOST_LAYERS, MOST_POINTS, points, thinned, valid_name
from tests.records import METRIC


def series(values) -> Series:
    return Series(np.arange(len(values), dtype=np.int64), np.asarray(values, dtype=np.float64))


def test_a_short_curve_is_kept_whole() -> None:
    assert thinned(series(np.arange(50.0))).tolist() == list(range(50))


def test_thinning_keeps_ends_and_every_spike() -> None:
    values = np.sin(np.arange(20_000) / 500)
    values[[1234, 9999, 17_001]] = 40, -30, 25
    kept = thinned(series(values))
    assert len(kept) <= MOST_POINTS
    assert {0, 1234, 9999, 17_001, 19_999} <= set(kept.tolist())
    assert (np.diff(kept) > 0).all()


@pytest.mark.parametrize("n", [201, 202, 399, 1000, 12_345])
def test_no_length_gives_more_points_than_allowed(n: int) -> None:
    rng = np.random.default_rng(n)
    kept = thinned(series(rng.normal(size=n)))
    assert 0.5 * MOST_POINTS < len(kept) <= MOST_POINTS
    assert kept[0] == 0
    assert kept[-1] == n - 1


def test_of_a_long_curve_what_lies_between_equal_neighbours_goes_first() -> None:
    steps = np.repeat([0.1, 0.01, 0.001], 1000)
    assert thinned(series(steps)).tolist() == [0, 999, 1000, 1999, 2000, 2999]
    assert thinned(series(np.ones(MOST_POINTS))).tolist() == list(range(MOST_POINTS))


def test_what_is_not_finite_is_not_drawn() -> None:
    values = np.array([1.0, np.nan, 2.0, np.inf, -np.inf])
    assert thinned(series(values)).tolist() == [0, 2]
    assert thinned(series([np.nan, np.nan])).tolist() == []


def test_points_are_on_the_optimizer_step() -> None:
    curve = Series(np.array([20, 40], dtype=np.int64), np.array([0.5, 0.25]))
    shown = list(points(Telemetry({"val/loss": curve}), METRIC, with_test=False, with_layers=True))
    assert shown == [("val/loss", 20, 0.5), ("val/loss", 40, 0.25)]


def test_the_test_split_is_left_out_unless_asked_for() -> None:
    telemetry = Telemetry({"test/loss": series([1.0]), "val/loss": series([2.0])})
    names = {n for n, _, _ in points(telemetry, METRIC, with_test=False, with_layers=True)}
    assert names == {"val/loss"}
    names = {n for n, _, _ in points(telemetry, METRIC, with_test=True, with_layers=True)}
    assert names == {"test/loss", "val/loss"}


def test_a_deep_model_shows_its_first_layers_only() -> None:
    layers = [f"block.{i}" for i in range(100)]
    telemetry = Telemetry(
        {"train/loss": series([1.0])}
        | {f"update_ratio/{x}": series([1e-3]) for x in layers}
        | {f"{of}/{x}": series([0.5]) for of in ("activation_std", "dead_units") for x in layers},
        {"weight_layers": ",".join(layers)},
    )
    names = [n for n, _, _ in points(telemetry, METRIC, with_test=False, with_layers=True)]
    assert len(names) == 1 + 2 * MOST_LAYERS
    assert names[:2] == ["train/loss", "update_ratio/block.0"]


def test_layers_are_shown_where_asked_for_and_biases_never() -> None:
    telemetry = Telemetry(
        {x: series([1.0]) for x in ("lr", "grad_norm", "grad_norm/0.bias", "activation_std/0")}
        | {"grad_norm/0.weight": series([1.0])},
        {"weight_layers": "0.weight"},
    )
    names = {
        asked: {n for n, _, _ in points(telemetry, METRIC, with_test=False, with_layers=asked)}
        for asked in (False, True)
    }
    assert names[False] == {"lr", "grad_norm"}
    assert names[True] == {"lr", "grad_norm", "grad_norm/0.weight", "activation_std/0"}


@pytest.mark.parametrize(
    ("name", "valid"),
    [("val/loss", "val/loss"), ("acc@1", "acc_1"), ("/x//y", "x/y"), ("../x", "x"), ("@", "_")],
)
def test_names_become_what_mlflow_accepts(name: str, valid: str) -> None:
    assert valid_name(name) == valid
