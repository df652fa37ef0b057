from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from orchestrator.nouns import Interval, Series
from orchestrator.report import figures
from orchestrator.report.figures import Band, ForestRow

PNG = b"\x89PNG\r\n\x1a\n"


def width(png: bytes) -> int:
    assert png.startswith(PNG)
    return int.from_bytes(png[16:20], "big")


def band(label: str, *curves: tuple[list[int], list[float]], is_baseline: bool = False) -> Band:
    return Band(
        label,
        tuple(Series(np.array(s, dtype=np.int64), np.array(v)) for s, v in curves),
        is_baseline,
    )


def test_a_forest_plot_is_readable_at_900_pixels_and_reproducible() -> None:
    rows = [
        ForestRow("wd=0.1", -0.15, Interval(-0.2, -0.1), (-0.14, -0.16), "better (confirmed)"),
        ForestRow("wd=1", 0.24, Interval(0.18, 0.3), (0.2,), "worse"),
        ForestRow("wd=0.01", math.nan, Interval(-math.inf, math.inf), (), "inconclusive"),
    ]

    def draw() -> bytes:
        return figures.forest(
            rows, title="t", axis="difference [nat]", delta=0.02, lower_is_better=True
        )

    assert width(draw()) == 900
    assert draw() == draw()


@pytest.mark.parametrize(
    ("difference", "interval", "lower_is_better", "colour"),
    [
        (-0.2, Interval(-0.3, -0.1), True, figures.GAIN),
        (-0.2, Interval(-0.3, -0.1), False, figures.HARM),
        (0.2, Interval(0.1, 0.3), False, figures.GAIN),
        (-0.2, Interval(-0.5, 0.1), True, figures.OPEN),
        (math.nan, Interval(-math.inf, math.inf), True, figures.OPEN),
    ],
)
def test_colour_says_whether_the_interval_excludes_zero_and_on_which_side(
    difference: float, interval: Interval, lower_is_better: bool, colour: str
) -> None:
    assert figures._colour(ForestRow("a", difference, interval), lower_is_better) == colour


def test_a_band_is_the_range_over_seeds_where_half_of_them_are_finite() -> None:
    curves = band("a", ([1, 2, 3], [1.0, 2.0, np.nan]), ([1, 2], [3.0, 5.0]), ([1, 3], [2.0, 9.0]))
    steps, low, middle, high = figures._envelope(curves.curves)
    assert steps.tolist() == [1, 2]
    assert low.tolist() == [1.0, 2.0]
    assert middle.tolist() == [2.0, 3.5]
    assert high.tolist() == [3.0, 5.0]


def test_curves_are_drawn_although_an_arm_has_none_or_nothing_finite() -> None:
    bands = [
        band("baseline", ([1, 2], [1.0, 0.5]), is_baseline=True),
        band("empty"),
        band("diverged", ([1, 2], [np.nan, np.inf])),
    ]
    png = figures.curves([("val/loss [nat]", bands), ("probe/loss [nat]", bands)], title="t")
    assert width(png) == 900


def test_a_wide_range_goes_to_a_log_axis() -> None:
    steps = list(range(100))
    exploding = band("a", (steps, [1.0] * 60 + [1e4] * 40))
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    figures._limit(axes, [exploding.curves[0].values])
    assert axes.get_yscale() == "log"


def test_pyplot_is_never_touched() -> None:
    program = (
        "import sys; from orchestrator.report import figures\n"
        "figures.forest([], title='t', axis='x', delta=None, lower_is_better=False)\n"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
