"""Signals of the inside of a network: what modules put out, and its answers on the probe set."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from orchestrator.nouns import Telemetry
from orchestrator.telemetry.robust import theil_sen

_LEAST_DEPTH = 3
"""Layers that it takes to speak of a trend over depth."""


def activation_decay(telemetry: Telemetry) -> float | None:
    """Factor by which the std of activations changes from one layer to the next, at the start.

    The exponential of the Theil-Sen slope of log std over depth, at the first step that was
    sampled, over linear layers and convolutions in the model's order: 1 keeps its scale, 0.1
    vanishes by ten per layer. A single layer, as a head that starts at zero, does not move it.
    Source: variance kept from layer to layer (Glorot and Bengio 2010, He et al. 2015); row 10 of
    docs/diagnosis.md calls tenfold per layer a bad initialisation.
    """
    stds = telemetry.layers("activation_std")
    weights = str(telemetry.header.get("weight_layers") or "").split(",")
    modules = [weight.removesuffix(".weight") for weight in weights]
    first = np.array([stds[name].values[0] for name in modules if name in stds])
    depth = np.arange(len(first))
    is_told = np.isfinite(first) & (first > 0)
    if is_told.sum() < _LEAST_DEPTH:
        return None
    return float(np.exp(theil_sen(depth[is_told], np.log(first[is_told]))))


def activation_zeros(telemetry: Telemetry) -> float | None:
    """Share of exact zeros in the outputs of the worst module, median over its second half.

    Above 0.4 capacity is lost, above 0.9 the layer is dead; 0.5 is normal after a ReLU.
    """
    return _worst(telemetry, "activation_zeros")


def activation_saturation(telemetry: Telemetry) -> float | None:
    """Share of outputs near a bound in the worst module that has one, median over its second half.

    See docs/monitoring.md for the bounds of sigmoid, tanh and softmax.
    """
    return _worst(telemetry, "activation_saturated")


def dead_units(telemetry: Telemetry) -> float | None:
    """Share of units of the worst module that were zero over the whole last pass of the probe set.

    Above 0.5 in three passes in a row, row 13 of docs/diagnosis.md calls the module dead.
    """
    last = [series.values[-1] for series in telemetry.layers("dead_units").values()]
    return float(np.max(last)) if last else None


def logit_spread(telemetry: Telemetry) -> float | None:
    """A row's largest minus smallest logit, mean over the last pass of the probe set.

    Above 50 the softmax is saturated.
    """
    return _last(telemetry, "logit_spread")


def logit_variance(telemetry: Telemetry) -> float | None:
    """Variance of a row's logits, mean over the last pass of the probe set.

    Above 100 the softmax is saturated.
    """
    return _last(telemetry, "logit_variance")


def initial_logit_std(telemetry: Telemetry) -> float | None:
    """Root of the mean variance of a row's logits on the probe set, the first time it was seen.

    Above 5 at the start, row 29 of docs/diagnosis.md calls the head's scale wrong. A probe before
    the first step shows the initialisation; a later one what training has made of it.
    """
    if "logit_variance" not in telemetry:
        return None
    return float(np.sqrt(telemetry["logit_variance"].values[0]))


def relative_entropy(telemetry: Telemetry) -> float | None:
    """Entropy of the softmax over log K, mean over the last pass of the probe set.

    1 is not to know, 0 to be sure. Near 1 at the start in good health; towards 0 is a good fit or
    over-confidence, which only validation tells apart.
    """
    return _last(telemetry, "entropy")


def log_z_drift(telemetry: Telemetry) -> float | None:
    """How far log Z moved from the first evaluation to the last, in nat.

    Softmax does not see it, so nothing but weight decay or a z-loss (Chowdhery et al. 2022)
    holds it: logits that grow without bound show here first.
    """
    if "log_z" not in telemetry or len(telemetry["log_z"]) < 2:
        return None
    values = telemetry["log_z"].values
    return float(values[-1] - values[0])


def eval_inconsistency(telemetry: Telemetry) -> float | None:
    """Largest difference between two passes over one batch, over the largest output.

    Above 1e-4 evaluation draws random numbers; kernels that are not deterministic come to 1e-3
    (row 5 of docs/diagnosis.md).
    """
    return _last(telemetry, "eval_inconsistency")


FORMULAS: dict[str, tuple[Callable[[Telemetry], float | None], str]] = {
    formula.__name__: (formula, "nat" if formula is log_z_drift else "1")
    for formula in (
        activation_decay,
        activation_zeros,
        activation_saturation,
        dead_units,
        logit_spread,
        logit_variance,
        initial_logit_std,
        relative_entropy,
        log_z_drift,
        eval_inconsistency,
    )
}
"""Formula and unit by name."""


def _last(telemetry: Telemetry, name: str) -> float | None:
    return float(telemetry[name].values[-1]) if name in telemetry else None


def _worst(telemetry: Telemetry, quantity: str) -> float | None:
    medians = []
    for series in telemetry.layers(quantity).values():
        middle = (series.steps[0] + series.steps[-1]) / 2
        medians.append(np.median(series.values[series.steps >= middle]))
    return float(np.max(medians)) if medians else None
