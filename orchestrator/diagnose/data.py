"""Rules about the data: how it was labelled, split, ordered, scaled."""

from __future__ import annotations

import math

import numpy as np

from orchestrator.diagnose.curves import whole_run
from orchestrator.diagnose.layers import at_start, classes, is_tall, latest, weights
from orchestrator.diagnose.progress import progress, share
from orchestrator.diagnose.registry import rule
from orchestrator.nouns import Finding, Telemetry
from orchestrator.telemetry.robust import finite

FAR = 25.0  # root mean square of inputs; rows reach twice that: abs > 50 of row 11
APART = 0.3  # accuracy by which validation lags in the first evaluations
CHANCE = 1.6  # times 1/C
UNMIXED = 0.4  # label entropy of a batch over that of the train set


@rule(
    needs=("activation_std/", "param_norm/"),
    tells="inputs far from unit scale",
    explains=(
        "logit_scale",
        "exploding_gradients",
        "instability",
        "loss_spikes",
        "gradient_spike",
        "dead_units",
        "non_finite",
        "overfitting",
        "plateau",
    ),
)
def input_scale(telemetry: Telemetry) -> Finding | None:
    """Inputs so large that the first predictions are confidently wrong.

    Their root mean square, estimated in the first step from what the first layer makes of them
    (std of its outputs over its weight norm per output), exceeds 25, and the first loss 3 log C
    (row 11 of docs/diagnosis.md: abs > 50, zoo; UMLAUT's [-1, 1] fires on healthy runs). Excluded:
    standardised inputs, intensities up to 16 or 255 that the first layer's weights make up for.
    """
    first = next(iter(weights(telemetry)), None)
    spread = telemetry.layers("activation_std")
    if first is None or not is_tall(telemetry, progress(telemetry)):
        return None
    module = first.name.removesuffix(".weight")
    norms = telemetry.layers("param_norm")
    if module not in spread or first.name not in norms:
        return None
    out, norm = at_start(spread[module]), at_start(norms[first.name])
    if out is None or not norm:
        return None
    size = out / (norm / math.sqrt(first.rows))
    if size < FAR:
        return None
    return Finding(
        rule="input_scale",
        severity=0.9,
        summary="inputs are about {input_rms:.3g} large (healthy: 1)",
        steps=whole_run(telemetry),
        layer=first.name,
        evidence={"input_rms": size},
        confounders=("weights correlated with the inputs, as of a trained first layer",),
    )


@rule(
    needs=("val/loss", "probe/loss", "val/accuracy", "probe/accuracy"),
    tells="validation data of another kind from overfitting",
    explains=("overfitting",),
)
def validation_shift(telemetry: Telemetry) -> Finding | None:
    """Validation lags far behind from the first evaluations on, before anything was memorised.

    In both of the first 2 evaluations at which the train probe's accuracy is 0.3 above a guess and
    its loss still above a tenth of the start: accuracy 0.3 below the probe's, and a loss that is
    1.2 times as high, in one of them twice (row 23 of docs/diagnosis.md, zoo; loss ratios ours).
    Excluded: gaps that open later (`overfitting`); small sets learned by heart before the second
    evaluation.
    """
    course, count = progress(telemetry), classes(telemetry)
    names = ("probe/loss", "val/loss", "probe/accuracy", "val/accuracy")
    curves = [finite(telemetry[name]) for name in names]
    steps = sorted(set.intersection(*(set(curve.steps.tolist()) for curve in curves)))
    if course is None or len(steps) < 3:
        return None
    probe, val, right, val_right = (c.values[np.searchsorted(c.steps, steps)] for c in curves)
    right, val_right = share(right), share(val_right)
    begun = np.flatnonzero((right > 1 / (count or 2) + APART) & (probe > 0.1 * course.start))[:2]
    n = len(right)
    if len(begun) < 2 or begun[-1] >= max(2, n // 2):
        return None
    late = latest(telemetry, "val/accuracy") or 0.0
    gap, ratio = right - val_right, val / np.maximum(probe, 1e-12)
    if np.min(gap[begun]) < APART or np.min(ratio[begun]) < 1.2 or np.max(ratio[begun]) < 2:
        return None
    return Finding(
        rule="validation_shift",
        severity=float(min(1.0, 0.5 + np.min(gap[begun]))),
        summary="accuracy on validation was {gap:.2f} below that on train from the first "
        "evaluation on ({val_accuracy:.2f} in the end)",
        steps=(int(steps[begun[0]]), int(steps[-1])),
        evidence={"gap": float(np.min(gap[begun])), "val_accuracy": late},
        confounders=("validation that is harder by design", "a train set of a few examples"),
    )


@rule(
    needs=("val/accuracy", "probe/accuracy|train/accuracy"),
    tells="wrong labels from overfitting",
    explains=("overfitting", "plateau", "validation_shift"),
)
def label_noise(telemetry: Telemetry) -> Finding | None:
    """The train set is being learned, and nothing of it helps on validation.

    Validation accuracy below twice that of a guess (1/C) in nine of ten evaluations, and in the end
    below 1.6 times it, while accuracy on train reached 0.2 more than a guess (row 25 of
    docs/diagnosis.md, zoo; the 0.2 ours). Excluded: imbalance (a constant answer is above 1/C),
    shift (above a guess).
    """
    count = classes(telemetry)
    name = "probe/accuracy" if "probe/accuracy" in telemetry else "train/accuracy"
    reached, val = latest(telemetry, name), finite(telemetry["val/accuracy"])
    if count is None or reached is None or len(val) < 3:
        return None
    right, seen = float(share(np.array([reached]))[0]), share(val.values)
    end = float(np.median(seen[-3:]))
    if right < 1 / count + 0.2 or end > CHANCE / count or np.quantile(seen, 0.9) > 2 / count:
        return None
    return Finding(
        rule="label_noise",
        severity=0.9,
        summary="{accuracy:.0%} of train answers are right and {val_accuracy:.0%} of validation's, "
        "as many as by guessing among {classes:.0f}",
        steps=(int(val.steps[0]), int(val.steps[-1])),
        evidence={"accuracy": right, "val_accuracy": end, "classes": float(count)},
        confounders=("a validation set with other labels", "inputs that were shuffled"),
    )


@rule(extra=True, needs=("val/recall_rare", "val/accuracy"), tells="harm by rare classes")
def class_imbalance(telemetry: Telemetry) -> Finding | None:
    """Rare classes are not recognised, though most examples are.

    `val/recall_rare` is for the user to log: mean recall over the classes with less than a tenth of
    the largest's examples. Below 0.3 with an accuracy above 0.8 (row 26 of docs/diagnosis.md).
    Excluded: a ratio alone (12:1 sets are learned); runs that have learned nothing yet.
    """
    recall, right = latest(telemetry, "val/recall_rare"), latest(telemetry, "val/accuracy")
    if recall is None or right is None:
        return None
    right = float(share(np.array([right]))[0])
    if recall >= 0.3 or right <= 0.8:
        return None
    return Finding(
        rule="class_imbalance",
        severity=0.7,
        summary="{recall:.0%} of the rare classes' examples are recognised, of all {accuracy:.0%}",
        steps=whole_run(telemetry),
        evidence={"recall": recall, "accuracy": right},
        confounders=("rare classes that are harder", "a handful of examples to judge by"),
    )


@rule(
    extra=True,
    needs=("train/label_entropy",),
    tells="data in an order from shuffled data",
    explains=("instability", "loss_spikes", "gradient_spike", "plateau", "overfitting"),
)
def data_order(telemetry: Telemetry) -> Finding | None:
    """Batches hold few of the classes: the data is not shuffled.

    `train/label_entropy` is for the user to log: entropy of a batch's labels over the logarithm of
    the number of classes. Below 0.4 in more than half of the batches (row 27 of docs/diagnosis.md).
    Excluded: single batches; many classes in small batches, if `samples` is recorded.
    """
    entropy = finite(telemetry["train/label_entropy"])
    count, most = classes(telemetry), 1.0
    batch = latest(telemetry, "samples")
    if batch is not None and batch <= 1:
        return None
    if count is not None and batch is not None and batch < count:
        most = math.log(batch) / math.log(count)
    low = float(np.mean(entropy.values < UNMIXED * most)) if len(entropy) else 0.0
    if len(entropy) < 10 or low <= 0.5:
        return None
    return Finding(
        rule="data_order",
        severity=0.8,
        summary="{share:.0%} of the batches hold few of the classes (entropy {entropy:.2f} of what "
        "a mixed batch has)",
        steps=(int(entropy.steps[0]), int(entropy.steps[-1])),
        evidence={"share": low, "entropy": float(np.median(entropy.values)) / most},
        confounders=("sequences or episodes on purpose", "one class that is most of the data"),
    )


@rule(extra=True, needs=("val/duplicates",), tells="train examples in validation", exact=True)
def leakage(telemetry: Telemetry) -> Finding | None:
    """Validation examples are in the train set.

    `val/duplicates` is for the user to log: the share of validation whose content is in train as
    well. Exact, any at all (row 24 of docs/diagnosis.md). Excluded: nothing; near-duplicates are
    for whoever computes the share to count.
    """
    part = latest(telemetry, "val/duplicates")
    if part is None or part <= 0:
        return None
    return Finding(
        rule="leakage",
        severity=0.9,
        summary="{duplicates:.1%} of the validation examples are in the train set",
        steps=whole_run(telemetry),
        evidence={"duplicates": part},
        confounders=("examples that occur twice in nature",),
    )
