"""Rules about numbers that are none."""

from __future__ import annotations

import numpy as np

from orchestrator.diagnose.curves import first_step, whole_run
from orchestrator.diagnose.layers import latest
from orchestrator.diagnose.registry import rule
from orchestrator.nouns import Finding, Series, Telemetry
from orchestrator.telemetry.robust import finite

STREAK = 10  # skipped steps in a row; an AMP scale search ends before
LOST = 0.3  # share of a bias gradient that is exactly zero
SETTLED = 20  # steps a loss scale may take to be found
HALVINGS, WINDOW = 5, 100


@rule(needs=("train/loss|probe/loss|grad_norm",), tells="whether numbers stay finite", exact=True)
def non_finite(telemetry: Telemetry) -> Finding | None:
    """The loss ends as NaN or infinity, or 10 steps in a row had a gradient that is not finite.

    Row 7 of docs/diagnosis.md. Excluded: single skipped steps of an AMP scale search, an evaluation
    that alone is NaN (that is the evaluation's fault), a loss that came back.
    """
    found = []
    for name, streak in (("train/loss", 1), ("probe/loss", 1), ("grad_norm", STREAK)):
        if name in telemetry and len(telemetry[name]):
            first, last = _last_streak(telemetry[name])
            if last - first + 1 >= streak:
                steps = telemetry[name].steps
                found.append((int(steps[first]), int(steps[last]), name))
    if not found:
        return None
    first, last, name = min(found)
    return Finding(
        rule="non_finite",
        severity=1.0,
        summary="{series} is not finite from step {first} on",
        steps=(first, last),
        evidence={"series": name, "from_step": float(first)},
        confounders=("a batch with a broken value", "overflow in half precision"),
    )


def _last_streak(series: Series) -> tuple[int, int]:
    """First and last index of the streak of values that are not finite and reach to the end.

    Empty (last before first) if the last value is finite.
    """
    finite = np.flatnonzero(np.isfinite(series.values))
    first = int(finite[-1]) + 1 if len(finite) else 0
    return first, len(series) - 1


@rule(
    extra=True,
    needs=("grad_zeros/", "train/loss|probe/loss"),
    tells="gradients lost to underflow",
    explains=(
        *("vanishing_gradients", "dead_units", "epsilon_too_large"),
        *("learning_rate_too_low", "plateau"),
    ),
)
def underflow(telemetry: Telemetry) -> Finding | None:
    """Much of the output layer's bias gradient is exactly zero, while there is a loss to lower.

    Median share of exact zeros above 0.3 at a loss above 0.02 (row 17 of docs/diagnosis.md, zoo;
    Lightning#9799): every class's bias has a gradient in every batch, whatever units are dead.
    Excluded: gradients of layers further down (dead inputs), converged runs; masked classes are
    zeros, too, and a confounder.
    """
    biases = {n: s for n, s in telemetry.layers("grad_zeros").items() if n.endswith("bias")}
    loss = latest(telemetry, "train/loss", 20) or latest(telemetry, "probe/loss")
    if not biases or loss is None or loss <= 0.02:
        return None
    name, series = list(biases.items())[-1]
    zeros = finite(series).values
    part = float(np.median(zeros)) if len(zeros) >= 10 else 0.0
    if part <= LOST or part == 1.0:  # all of it: nothing reaches the head at all
        return None
    return Finding(
        rule="underflow",
        severity=0.8,
        summary="{zeros:.0%} of the gradient of {layer} is exactly zero",
        steps=whole_run(telemetry),
        layer=name,
        evidence={"zeros": part, "layer": name},
        confounders=("classes that are masked", "classes that no batch holds"),
    )


@rule(
    extra=True,
    needs=("loss_scale",),
    tells="a loss scale that collapses",
    explains=("plateau", "underflow"),
)
def loss_scale_collapse(telemetry: Telemetry) -> Finding | None:
    """The loss scale is halved again and again, or ends below 1.

    More than 5 halvings within 100 steps after the first 20, or a last scale below 1 (row 18 of
    docs/diagnosis.md, literature). Excluded: the search for a scale in the first 20 steps, single
    halvings after each growth.
    """
    scale = finite(telemetry["loss_scale"])
    late = scale.steps >= first_step(telemetry) + SETTLED
    steps, values = scale.steps[late], scale.values[late]
    if len(values) < 10:
        return None
    falls = steps[1:][values[1:] < values[:-1]]
    most = max((int(np.sum((falls >= s) & (falls < s + WINDOW))) for s in falls), default=0)
    if most <= HALVINGS and values[-1] >= 1:
        return None
    return Finding(
        rule="loss_scale_collapse",
        severity=0.8,
        summary="the loss scale was lowered {halvings:.0f} times in 100 steps, to {scale:.3g}",
        steps=(int(falls[0]) if len(falls) else int(steps[0]), int(steps[-1])),
        evidence={"halvings": float(most), "scale": float(values[-1])},
        confounders=("a model that overflows in half precision by nature",),
    )
