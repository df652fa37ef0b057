import numpy as np
import pytest

from orchestrator.nouns import Series, Telemetry
from orchestrator.report.layers import MOST_LAYERS, layer_picture, panels

STEPS = np.arange(0, 100, 10)


def series(values):
    return Series(STEPS[: len(values)], np.asarray(values, dtype=float))


def vanishing(depth=4):
    """The gradient falls by ten a layer towards the input, and by half until the last step."""
    found = {}
    for layer in range(depth):
        scale = 10.0 ** (layer - depth)
        found[f"grad_norm/{layer}.weight"] = series(scale * np.linspace(1, 0.5, 10))
        found[f"update_ratio/{layer}.weight"] = series(np.full(10, 1e-3 * (layer + 1)))
        found[f"update_ratio/{layer}.bias"] = series(np.full(10, 0.5))
        found[f"activation_std/{layer}"] = series(np.full(10, 2.0**-layer))
    weights = ",".join(f"{layer}.weight" for layer in range(depth))
    return Telemetry(found, {"weight_layers": weights})


def test_each_panel_shows_what_was_recorded():
    depth, time, activations = panels(vanishing())
    assert depth.names == ("0.weight", "1.weight", "2.weight", "3.weight")
    assert list(depth.lines) == ["step 0", "step 40", "step 90"]
    x, y = depth.lines["step 90"]
    assert x.tolist() == [0, 1, 2, 3]
    assert y == pytest.approx([0.5e-4, 0.5e-3, 0.5e-2, 0.5e-1])
    assert list(time.lines) == ["0.weight", "1.weight", "2.weight", "3.weight"]
    assert time.lines["2.weight"][1] == pytest.approx(np.full(10, 3e-3))
    assert activations.lines["step 0"][1] == pytest.approx([1, 0.5, 0.25, 0.125])


def test_what_a_log_axis_cannot_show_is_left_out_and_the_rest_stays_in_its_place():
    telemetry = vanishing()
    telemetry.series["grad_norm/1.weight"].values[:] = [0.0] * 9 + [np.nan]
    x, _ = panels(telemetry)[0].lines["step 0"]
    assert x.tolist() == [0, 2, 3]


def test_of_very_many_layers_some_are_drawn():
    time = panels(vanishing(depth=100))[1]
    assert len(time.lines) <= MOST_LAYERS
    assert "0.weight" in time.lines


def test_a_trial_without_layers_has_no_picture():
    assert layer_picture(Telemetry({"train/loss": series([1.0, 0.5])}, {})) is None
    assert layer_picture(vanishing())[:4] == b"\x89PNG"
