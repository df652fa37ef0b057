"""Rules about what depth does to signals: gradients that vanish or explode, units that die."""

from __future__ import annotations

import numpy as np

from orchestrator.diagnose.curves import first_step, total_steps, whole_run
from orchestrator.diagnose.layers import at_start, early_gradients, is_tall, weights
from orchestrator.diagnose.progress import progress
from orchestrator.diagnose.registry import rule
from orchestrator.nouns import Finding, Series, Telemetry
from orchestrator.telemetry.robust import finite
from orchestrator.telemetry.signals import update_ratios

VANISHED, ALIVE = 1e-3, 1e-5  # first over last layer's gradient; the last one's own
GROWTH = 10.0  # of the activations' variance from one weight layer to the next
FEWEST_LAYERS = 4
DEAD = 0.9  # share of outputs that are zero
SPREAD = 1e3
STALLED = ("plateau", "learning_rate_too_low", "over_regularised", "epsilon_too_large")


@rule(
    needs=("grad_norm/", "train/loss|probe/loss"),
    tells="vanishing gradients from slow learning",
    explains=("dead_units", "layer_imbalance", "instability", *STALLED),
)
def vanishing_gradients(telemetry: Telemetry) -> Finding | None:
    """Gradients that fade from the output to the input, in a run that is underfit.

    Root mean square of the gradient of the first weight matrix under 1e-3 of the last one's, which
    is above 1e-5 (row 12 of docs/diagnosis.md, AutoTrainer's ratio; medians of the first 50 steps).
    Excluded: embeddings, frozen layers, exact zeros (`dead_units`), converged runs, branches that
    start at zero (median of 50 steps, not step 0).
    """
    course, sizes = progress(telemetry), list(early_gradients(telemetry).items())
    if course is None or not course.is_underfit or len(sizes) < FEWEST_LAYERS:
        return None
    (name, first), (_, last) = sizes[0], sizes[-1]
    if not 0 < first < VANISHED * last or last < ALIVE:
        return None
    return Finding(
        rule="vanishing_gradients",
        severity=0.9,
        summary="the gradient of {layer} is {ratio:.2g} of the last layer's, element by element",
        steps=whole_run(telemetry),
        layer=name,
        evidence={"ratio": first / last, "layer": name},
        confounders=("a first layer that is trained already", "half precision underflow"),
    )


@rule(
    needs=("activation_std/|grad_norm", "train/loss|probe/loss"),
    tells="exploding activations and gradients",
    explains=(
        *("logit_scale", "instability", "loss_spikes", "gradient_spike", "non_finite"),
        *("overfitting", "dead_units", "layer_imbalance", *STALLED),
    ),
)
def exploding_gradients(telemetry: Telemetry) -> Finding | None:
    """Signals that grow from layer to layer, or gradients that grow until numbers end.

    Either the variance of the activations grows by more than 10 per weight layer, over 4 of them at
    least, in the first step, and the first loss is above 3 log C (row 10 of docs/diagnosis.md,
    SageMaker's ratio per depth); or the gradient norm passed 20 times the median of the 50 steps
    before within 10 steps before the loss ceased to be finite (row 8). Excluded: loss scales that
    were not undone and sums over a batch (constant factors), spikes that recover, single layers.
    """
    growth = _growth(telemetry)
    if growth is not None and growth > GROWTH and is_tall(telemetry, progress(telemetry)):
        says, evidence = "activations grow {growth:.3g}-fold in variance per layer", growth
        return _exploded(telemetry, says, "growth", evidence, first_step(telemetry))
    jump = _before_the_end(telemetry)
    if jump is None or jump[1] <= 20:
        return None
    says = "the gradient norm reached {jump:.3g} times its level just before the loss was lost"
    return _exploded(telemetry, says, "jump", jump[1], jump[0])


def _exploded(telemetry: Telemetry, says: str, name: str, value: float, begins: int) -> Finding:
    return Finding(
        rule="exploding_gradients",
        severity=0.9,
        summary=says,
        steps=(begins, total_steps(telemetry) - 1),
        evidence={name: value},
        confounders=("inputs far from unit scale", "a broken batch"),
    )


def _growth(telemetry: Telemetry) -> float | None:
    """Growth of the outputs' variance per weight layer in the first step that was looked at."""
    spread = telemetry.layers("activation_std")
    named = [w.name.removesuffix(".weight") for w in weights(telemetry)]
    stds = [at_start(spread[name]) for name in named if name in spread]
    known = [std for std in stds if std]
    if len(known) < FEWEST_LAYERS:
        return None
    return float((known[-1] / known[0]) ** (2 / (len(known) - 1)))


def _before_the_end(telemetry: Telemetry) -> tuple[int, float] | None:
    """Step and height of the gradient norm's peak in the 10 steps before the loss was lost."""
    if "train/loss" not in telemetry or "grad_norm" not in telemetry:
        return None
    loss, norm = telemetry["train/loss"], finite(telemetry["grad_norm"])
    if not len(loss) or np.isfinite(loss.values[-1]):
        return None
    lost = np.flatnonzero(np.isfinite(loss.values))
    end = int(loss.steps[lost[-1]]) if len(lost) else 0
    near = (norm.steps > end - 10) & (norm.steps <= end + 1)
    before = norm.values[(norm.steps <= end - 10) & (norm.steps > end - 60)]
    if not near.any() or len(before) < 10 or np.median(before) <= 0:
        return None
    peak = int(np.argmax(np.where(near, norm.values, -np.inf)))
    return int(norm.steps[peak]), float(norm.values[peak] / np.median(before))


@rule(
    needs=("activation_zeros/|dead_units/|grad_norm/", "train/loss|probe/loss"),
    tells="dead units from slow learning",
    explains=("layer_imbalance", *STALLED),
)
def dead_units(telemetry: Telemetry) -> Finding | None:
    """A layer whose units give nothing, in a run that is underfit.

    Over 90 % of a module's outputs are zero in the median of what was sampled (mission: a dead
    layer), or half of its units on the whole probe in 3 evaluations (row 13 of docs/diagnosis.md,
    SageMaker), or a weight matrix has a gradient of exactly zero in more than half of the sampled
    steps. Excluded: runs that learn (sparse by design), a ReLU's healthy half, gradients that are
    absent rather than zero; large early updates are the root (`instability`).
    """
    course = progress(telemetry)
    if course is None or not course.is_underfit:
        return None
    dead = _deadest(telemetry.layers("activation_zeros"), DEAD)
    says = "{share:.0%} of the outputs of {layer} are zero"
    if dead is None:
        dead = _deadest(telemetry.layers("dead_units"), 0.5)
        says = "{share:.0%} of the units of {layer} are zero on the whole probe"
    if dead is None:
        gradients = telemetry.layers("grad_norm")
        zero = {
            w.name: Series(s.steps, (s.values == 0).astype(np.float64))
            for w in weights(telemetry)
            if (s := gradients.get(w.name)) is not None
        }
        dead = _deadest(zero, 0.5, mean=True)
        says = "the gradient of {layer} is exactly zero in {share:.0%} of the sampled steps"
    if dead is None:
        return None
    layer, part = dead
    return Finding(
        rule="dead_units",
        severity=0.8,
        summary=says,
        steps=whole_run(telemetry),
        layer=layer,
        evidence={"share": part, "layer": layer},
        confounders=("sparse activations by design", "masks and padding"),
    )


def _deadest(
    layers: dict[str, Series], above: float, *, mean: bool = False
) -> tuple[str, float] | None:
    """The layer with the largest share, if that exceeds `above`; 3 points at least."""
    shares = {
        name: float(np.mean(known) if mean else np.median(known))
        for name, series in layers.items()
        if len(known := finite(series).values) >= 3
    }
    name = max(shares, key=lambda n: shares[n], default=None)
    return None if name is None or shares[name] <= above else (name, shares[name])


@rule(needs=("update_ratio/", "train/loss|probe/loss"), tells="layers that learn out of step")
def layer_imbalance(telemetry: Telemetry) -> Finding | None:
    """Weight matrices whose relative updates differ by more than three decades, for good.

    90th over 10th percentile of the update ratio over the matrices above 1e3 in four of five
    sampled steps of the second half (row 30 of docs/diagnosis.md, a judgement there), of 4 matrices
    at least, in a run that is underfit. Excluded: gains, biases and embeddings (matrices only),
    zero initialisation (second half).
    """
    course, layers = progress(telemetry), update_ratios(telemetry)
    if course is None or not course.is_underfit or len(layers) < FEWEST_LAYERS:
        return None
    steps = sorted(set.intersection(*(set(series.steps.tolist()) for series in layers)))
    late = [step for step in steps if step >= course.total / 2]
    if len(late) < 5:
        return None
    table = np.array([s.values[np.searchsorted(s.steps, late)] for s in layers])  # [layers, n]
    low, high = np.quantile(np.maximum(table, 1e-12), (0.1, 0.9), axis=0)
    if np.mean(high / low > SPREAD) < 0.8:
        return None
    return Finding(
        rule="layer_imbalance",
        severity=0.5,
        summary="relative updates of the layers are {spread:.2g}-fold apart",
        steps=(late[0], late[-1]),
        evidence={"spread": float(np.median(high / low))},
        confounders=("learning rates per group on purpose",),
    )
