import numpy as np
import pytest

from orchestrator.diagnose.progress import progress
from orchestrator.nouns import Series, Telemetry


def telemetry(**curves):
    named = {name.replace("__", "/"): np.asarray(v, dtype=float) for name, v in curves.items()}
    return Telemetry({n: Series(np.arange(len(v)), v) for n, v in named.items()})


FALLING = np.linspace(2.3, 0.1, 200)


def test_a_run_that_fell_below_a_quarter_of_its_start_has_learned():
    course = progress(telemetry(train__loss=FALLING))
    assert course.is_learned
    assert not course.is_underfit


def test_a_smoothed_label_has_a_floor_but_its_accuracy_tells():
    floor = np.linspace(2.3, 0.9, 200)
    assert not progress(telemetry(train__loss=floor, val__accuracy=[0.97] * 5)).is_underfit
    assert progress(telemetry(train__loss=floor, val__accuracy=[0.4] * 5)).is_underfit
    assert not progress(telemetry(train__loss=floor)).is_underfit  # the floor is unknown


def test_accuracy_in_per_cent_is_understood():
    course = progress(telemetry(train__loss=FALLING, probe__accuracy=[12.0, 50.0, 97.0]))
    assert course.accuracy == pytest.approx(0.5)


def test_a_first_loss_far_above_the_rest_does_not_set_the_start():
    losses = np.full(200, 2.0)
    losses[0] = 30.0
    assert progress(telemetry(train__loss=losses)).start == 2.0


def test_an_explosion_in_the_second_step_does_not_set_the_start():
    losses = np.concatenate([[2.3], np.full(199, 500.0)])
    assert progress(telemetry(train__loss=losses)).start == 2.3


def test_the_probe_is_preferred_and_non_finite_values_are_left_out():
    course = progress(
        telemetry(train__loss=FALLING + 0.5, probe__loss=[2.0, 1.0, np.nan, 0.5, 0.2, 0.1])
    )
    assert course.losses.tolist() == [2.0, 1.0, 0.5, 0.2, 0.1]
    assert course.end == pytest.approx(0.2)


def test_a_loss_at_or_below_zero_is_not_judged_by_shares():
    course = progress(telemetry(train__loss=np.linspace(-1.0, -5.0, 100)))
    assert not course.is_underfit
    assert not course.is_learned


def test_four_points_are_no_course():
    assert progress(telemetry(train__loss=[2.0, 1.9, 1.8, 1.7])) is None
    assert progress(Telemetry({})) is None


def test_what_was_learned_can_be_forgotten():
    back = np.concatenate([np.linspace(2.3, 0.1, 100), np.full(100, 1.5)])
    assert progress(telemetry(train__loss=back)).is_forgotten
    assert not progress(telemetry(train__loss=FALLING)).is_forgotten


def test_pace_tells_a_straight_fall_from_one_that_settles():
    straight = progress(telemetry(train__loss=np.linspace(2.3, 2.0, 200)))
    settled = progress(telemetry(train__loss=2.0 + 0.3 * np.exp(-np.arange(200) / 20)))
    assert straight.late_pace == pytest.approx(1.0, abs=0.1)
    assert settled.late_pace < 0.1
