"""The published rules of other tools, from their documents, on what our monitor records.

Each set fires if any of its rules does. What a rule of theirs reads and we do not record (weights
element by element, confusion matrices, inputs) is left out, or taken from the nearest norm: RMS in
place of mean absolute values. Left-out rules could only add alarms. Sources: SageMaker Debugger's
documented defaults; UMLAUT (Schoop et al. 2021); TheDeepChecker (Ben Braiek and Khomh 2022);
BTTackler (2024); DeepDiagnosis (Wardat et al. 2022); AutoTrainer (Zhang et al. 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from orchestrator.diagnose.layers import weights
from orchestrator.nouns import Floats, Telemetry

Peer = Callable[[Telemetry], bool]


def values(telemetry: Telemetry, name: str) -> Floats:
    return telemetry[name].values if name in telemetry else np.empty(0)


def epochs(telemetry: Telemetry, name: str) -> Floats:
    """Mean of a per-step series between evaluations, as Keras reports an epoch."""
    if name not in telemetry or "val/loss" not in telemetry:
        return np.empty(0)
    series = telemetry[name]
    parts = np.split(series.values, np.searchsorted(series.steps, telemetry["val/loss"].steps)[:-1])
    return np.array([np.mean(part) for part in parts if len(part)])


def gradients(telemetry: Telemetry) -> list[Floats]:
    """RMS of the gradient of each weight matrix on sampled steps, in the model's order."""
    layers = telemetry.layers("grad_norm")
    return [layers[w.name].values / w.size**0.5 for w in weights(telemetry) if w.name in layers]


def broken(telemetry: Telemetry) -> bool:
    names = ("train/loss", "val/loss", "grad_norm")
    return any(not np.all(np.isfinite(values(telemetry, name))) for name in names)


def shares(telemetry: Telemetry, quantity: str) -> Iterable[Floats]:
    return (series.values for series in telemetry.layers(quantity).values())


def sagemaker(telemetry: Telemetry) -> bool:
    """Its defaults, of the rules that fit.

    LossNotDecreasing (0.1 % in 10 steps), Overfit (0.1), VanishingGradient (1e-7), DeadRelu
    (50 %), WeightUpdateRatio (1e-8 to 10), PoorWeightInitialization (variances 10-fold apart),
    ExplodingTensor, Overtraining (5 evaluations without 0.01).
    """
    loss, val, train = (values(telemetry, n) for n in ("train/loss", "val/loss", "probe/loss"))
    stds = [v[0] for v in shares(telemetry, "activation_std") if len(v) and v[0] > 0]
    ratios = np.concatenate([*shares(telemetry, "update_ratio"), np.empty(0)])
    ratios = ratios[np.isfinite(ratios)]
    n = min(len(val), len(train))
    best = np.minimum.accumulate(val) if len(val) else val
    return (
        broken(telemetry)
        or bool(np.any(loss[10::10] > 0.999 * loss[:-10:10]))
        or bool(np.any((val[-n:] - train[-n:]) / np.maximum(train[-n:], 1e-12) > 0.1))
        or bool(np.any(best[5:] > best[:-5] - 0.01))
        or any(bool(np.any(g < 1e-7)) for g in gradients(telemetry))
        or any(bool(np.any(v > 0.5)) for v in shares(telemetry, "dead_units"))
        or bool(np.any((ratios > 10) | (ratios < 1e-8)))
        or (len(stds) > 1 and (max(stds) / min(stds)) ** 2 > 10)
    )


def umlaut(telemetry: Telemetry) -> bool:
    """Its checks at each epoch; inputs outside [-1, 1] are left out.

    Learning rate outside 1e-7 to 0.01, validation rises in an epoch in which train falls,
    validation accuracy above 0.95 or above train's, NaN.
    """
    lr, train, val = (
        values(telemetry, "lr"),
        epochs(telemetry, "train/loss"),
        values(telemetry, "val/loss"),
    )
    right, val_right = values(telemetry, "probe/accuracy"), values(telemetry, "val/accuracy")
    n, m = min(len(train), len(val)), min(len(right), len(val_right))
    return (
        broken(telemetry)
        or bool(np.any((lr > 0.01) | (lr < 1e-7)))
        or bool(np.any((np.diff(val[-n:]) > 0) & (np.diff(train[-n:]) <= 0)))
        or bool(np.any(val_right[3:] > 0.95))
        or bool(np.any(val_right[-m:][3:] > right[-m:][3:]))
    )


def deepchecker(telemetry: Telemetry) -> bool:
    """Its checks of loss, gradients and activations.

    Loss falls by less than 5 % in 5 steps, doubles, or fluctuates (smoothness under 0.5 in 50);
    train ahead of validation by 10 %; gradients that are zero, or grow; dead units over 50 %.
    """
    loss = values(telemetry, "train/loss")
    turns = np.mean(np.diff(loss)[1:] * np.diff(loss)[:-1] > 0) if len(loss) > 50 else 1.0
    gap = values(telemetry, "probe/accuracy")[-1:] - values(telemetry, "val/accuracy")[-1:]
    return (
        broken(telemetry)
        or bool(np.any(loss[5::5] > 0.95 * loss[:-5:5]))
        or bool(np.any(loss > 2 * np.minimum.accumulate(loss)))
        or turns < 0.5
        or bool(np.any(gap > 0.1))
        or any(bool(np.any(g == 0)) for g in gradients(telemetry))
        or any(bool(np.any(v > 0.5)) for v in shares(telemetry, "activation_zeros"))
    )


def bttackler(telemetry: Telemetry) -> bool:
    """Its quality indicators.

    Abnormal gradients (first over last layer outside 1e-3 to 1e3), passive loss (under 1 % in
    the first epochs), unexpected loss (above its start), saturation (no gain in 5), dead units.
    """
    sizes = [float(np.median(g)) for g in gradients(telemetry) if len(g)]
    ratio = sizes[0] / sizes[-1] if len(sizes) > 1 and sizes[-1] > 0 else 1.0
    train, right = epochs(telemetry, "train/loss"), values(telemetry, "probe/accuracy")
    return (
        broken(telemetry)
        or not 1e-3 <= ratio <= 1e3
        or bool(len(train) > 2 and train[2] > 0.99 * train[0])
        or bool(np.any(train[1:] > train[:1]))
        or bool(len(right) > 6 and np.max(right[-5:]) <= np.max(right[:-5]) + 1e-3)
        or any(bool(np.median(v) > 0.7) for v in shares(telemetry, "activation_zeros") if len(v))
    )


def deepdiagnosis(telemetry: Telemetry) -> bool:
    """Its failure symptoms.

    Unchanged or exploding weights, zero or saturated activations, loss or accuracy that does not
    move or is not finite, vanishing gradients (1e-7), layer by layer.
    """
    train, right = epochs(telemetry, "train/loss"), values(telemetry, "probe/accuracy")
    ratios = [v[np.isfinite(v)] for v in shares(telemetry, "update_ratio")]
    return (
        broken(telemetry)
        or any(len(v) > 10 and bool(np.mean(v < 1e-7) > 0.5) for v in ratios)
        or any(bool(np.median(g) < 1e-7) for g in gradients(telemetry) if len(g))
        or any(bool(np.median(v) > 0.95) for v in shares(telemetry, "activation_zeros") if len(v))
        or any(
            bool(np.median(v) > 0.95) for v in shares(telemetry, "activation_saturated") if len(v)
        )
        or bool(len(train) > 3 and train[-1] >= train[0])
        or bool(len(right) > 3 and np.ptp(right[1:]) < 0.01)
    )


def autotrainer(telemetry: Telemetry) -> bool:
    """Its monitor at its default parameters.

    Not finite; or accuracy below 0.7 or never up by 0.01, with zero gradients in 70 %, first
    over last layer's norm above 70 or below 1e-3 (and below 1e-4), or no gain; or accuracy that
    oscillates by 0.03 in a fifth of the epochs.
    """
    right, val = values(telemetry, "probe/accuracy"), values(telemetry, "val/accuracy")
    if broken(telemetry) or bool(np.any(values(telemetry, "val/loss")[-1:] >= 1e5)):
        return True
    if len(right) < 3 or len(val) < 2:
        return False
    stuck = max(float(np.max(np.diff(right))), float(np.max(np.diff(val)))) < 0.01
    layers = telemetry.layers("grad_norm")
    norms = [layers[w.name].values for w in weights(telemetry) if w.name in layers]
    first, last = (norms[0], np.maximum(norms[-1], 1e-30)) if norms else (np.ones(1), np.ones(1))
    n = min(len(first), len(last))
    ratio = first[:n] / last[:n]
    zeros = [float(np.median(v)) for v in shares(telemetry, "grad_zeros") if len(v)]
    if stuck or min(float(np.max(right)), float(np.max(val))) < 0.7:
        vanishes = bool(np.any((ratio < 1e-3) & (first[:n] < 1e-4)))
        dies = bool(zeros) and float(np.mean(zeros)) >= 0.7
        return stuck or vanishes or dies or bool(np.any(ratio > 70))
    middle = right[1:-1]
    tops = middle[(middle >= right[:-2]) & (middle >= right[2:])]
    bottoms = middle[(middle <= right[:-2]) & (middle <= right[2:])]
    swings = sum(t - b >= 0.03 for t, b in zip(tops, bottoms, strict=False))
    return swings >= 0.2 * len(right)


PEERS: dict[str, Peer] = {
    "SageMaker Debugger": sagemaker,
    "UMLAUT": umlaut,
    "TheDeepChecker": deepchecker,
    "BTTackler": bttackler,
    "DeepDiagnosis": deepdiagnosis,
    "AutoTrainer": autotrainer,
}
