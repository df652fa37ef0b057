"""Rules about what is optimised and how it is judged: objective, outputs, evaluation mode."""

from __future__ import annotations

import math

import numpy as np

from orchestrator.diagnose.curves import (
    LARGE_UPDATE,
    early_update_peak,
    running_median,
    whole_run,
)
from orchestrator.diagnose.layers import classes, latest
from orchestrator.diagnose.progress import progress, share
from orchestrator.diagnose.registry import ANYTHING, rule
from orchestrator.nouns import Finding, Series, Telemetry
from orchestrator.telemetry.robust import finite

CLIMBS = 3.0  # times its start, which a loss that is maximised passes soon
CHANCE = 1.6  # times 1/C: at most that of a guess, as in row 25 of docs/diagnosis.md
ACCURATE = 0.5
DROPPED = 0.2  # dropout from which the train loss must lie clearly above the probe's
LIKE_TRAIN = 0.9
DIFFERS = 1e-3
HARMED = 1.5  # times the train loss


@rule(
    needs=("train/loss|probe/loss|val/loss",),
    tells="an objective with the wrong sign",
    explains=(ANYTHING,),
)
def wrong_sign(telemetry: Telemetry) -> Finding | None:
    """The loss climbs from the first steps on and never comes back, though updates are small.

    A running median of 5 of the probe's (else validation's, else train's) loss ends at 3 times its
    start, is highest in its last tenth, and was below its start in none of its second half; early
    updates stay below 5e-2, beyond which the learning rate explains it (loop bugs of section 3 of
    docs/diagnosis.md, DC flipped_sign; thresholds ours). Excluded: updates that are large, losses
    that came down, losses that begin at or below zero (they may be likelihoods).
    """
    curves = [
        finite(telemetry[n]) for n in ("probe/loss", "val/loss", "train/loss") if n in telemetry
    ]
    loss = next((c for c in curves if len(c) >= 5), None)
    if loss is None or loss.values[0] <= 0 or early_update_peak(telemetry) > LARGE_UPDATE:
        return None
    smooth = running_median(loss.values, 5 if len(loss) >= 25 else 1)
    first, last = float(smooth[0]), float(smooth[-1])
    late = smooth[len(smooth) // 2 :]
    tops = np.argmax(smooth) >= 0.9 * (len(smooth) - 1)
    if last < CLIMBS * first or np.min(late) < first or not tops or np.min(smooth) < 0.8 * first:
        return None
    return Finding(
        rule="wrong_sign",
        severity=1.0,
        summary="the loss climbs from {start:.3g} to {end:.3g} and never comes back",
        steps=whole_run(telemetry),
        evidence={"start": first, "end": last},
        confounders=("a learning rate that is too high", "an adversary that is trained along"),
    )


@rule(
    needs=("train/loss", "probe/accuracy|train/accuracy|val/accuracy"),
    tells="a loss that does not fit the outputs",
    explains=(ANYTHING,),
)
def loss_head_mismatch(telemetry: Telemetry) -> Finding | None:
    """What is minimised is not what the outputs are judged by.

    Either (a) outputs are probabilities that are taken for logits: the loss never gets below
    log(1 + (C - 1) / e), where a perfect softmax stops, though half of the answers are right, and
    the outputs are known to be probabilities (so seen on the probe; without one, a mean of 1/C in
    every step); or (b) the train loss fell to a quarter while accuracy on the train set stayed at
    that of a guess (1.6 / C; row 6 of docs/diagnosis.md; DC redundant_softmax and wrong_loss;
    shares ours).
    Excluded: soft targets and label smoothing (their outputs spread further), probabilities whose
    logarithm is taken (the loss gets below the floor).
    """
    course, count = progress(telemetry), classes(telemetry)
    right = latest(telemetry, "probe/accuracy") or latest(telemetry, "train/accuracy")
    judged = right if right is not None else latest(telemetry, "val/accuracy")
    loss = finite(telemetry["train/loss"])
    if course is None or count is None or judged is None or len(loss) < 10:
        return None
    judged = float(share(np.array([judged]))[0])
    floor = math.log(1 + (count - 1) / math.e)
    lowest = float(np.min(running_median(loss.values, 5)))
    evidence: dict[str, float | str] = {"accuracy": judged, "floor": floor, "lowest": lowest}
    if judged > ACCURATE and 0.98 * floor <= lowest and _are_probabilities(telemetry, count):
        says = (
            "outputs are probabilities taken for logits: the loss stops at {lowest:.3g} (floor "
            "{floor:.3g}) with {accuracy:.0%} of the answers right"
        )
    elif right is not None and judged < CHANCE / count and _remains(telemetry) < 0.25:
        evidence["remaining"] = _remains(telemetry)
        says = (
            "the train loss fell to {remaining:.0%} of its start while {accuracy:.0%} of the "
            "answers on the train set are right"
        )
    else:
        return None
    return Finding(
        rule="loss_head_mismatch",
        severity=1.0,
        summary=says,
        steps=whole_run(telemetry),
        evidence=evidence,
        confounders=("soft targets on purpose", "an accuracy of something else"),
    )


def _are_probabilities(telemetry: Telemetry, count: int) -> bool:
    """Whether outputs are above 0 and sum to 1: seen on the probe, else by their mean, 1/C."""
    if "outputs_are_probabilities" in telemetry.header:
        return bool(telemetry.header["outputs_are_probabilities"])
    means = list(telemetry.layers("activation_mean").values())
    if not means:
        return False
    return bool(np.all(np.abs(means[-1].values * count - 1) < 1e-3))


def _remains(telemetry: Telemetry) -> float:
    """Share of the train loss that is left; 1 if it ended as no number or began at none."""
    loss = telemetry["train/loss"].values
    start, end = min(loss[0], float(np.median(loss[:5]))), float(np.median(loss[-20:]))
    return end / start if np.isfinite(end) and start > 0 else 1.0


@rule(
    needs=("eval_inconsistency",),
    tells="an evaluation that draws random numbers",
    explains=("plateau", "evaluation_in_training_mode"),
    exact=True,
    extra=True,
)
def evaluation_inconsistent(telemetry: Telemetry) -> Finding | None:
    """Two passes over one batch in evaluation mode differ.

    By more than 1e-3 of the largest output, on the probe set (row 5 of docs/diagnosis.md: any
    beyond 1e-4, relative 1e-3 for kernels that are not deterministic). Excluded: rounding.
    """
    gap = float(np.max(finite(telemetry["eval_inconsistency"]).values, initial=0.0))
    if gap <= DIFFERS:
        return None
    return Finding(
        rule="evaluation_inconsistent",
        severity=0.9,
        summary="two passes over one batch in evaluation mode differ by {gap:.1%} of the largest "
        "output",
        steps=whole_run(telemetry),
        evidence={"gap": gap},
        confounders=("sampling at evaluation on purpose",),
    )


@rule(
    needs=("train/loss", "probe/loss"),
    tells="an evaluation in training mode",
    explains=("plateau",),
)
def evaluation_in_training_mode(telemetry: Telemetry) -> Finding | None:
    """With dropout, the probe's loss is no lower than the train loss: dropout was on in it as well.

    At a dropout of 0.2 or more, over the last half of the evaluations, the median ratio of the
    probe's loss to the mean train loss since the evaluation before exceeds 0.9, and does so in nine
    of ten of them (row 5 of docs/diagnosis.md, transformers#33844; ratio ours, calibrated in the
    zoo). Excluded: less dropout; runs that have not begun to learn, where dropout changes nothing.
    """
    dropout = float(telemetry.header.get("dropout") or 0.0)
    course = progress(telemetry)
    if course is None or not DROPPED <= dropout <= 0.8 or course.remaining > 0.7:
        return None
    probe, ratios = finite(telemetry["probe/loss"]), _probe_ratios(telemetry)
    if len(ratios) < 3 or np.quantile(ratios, 0.1) < LIKE_TRAIN - 0.1:
        return None
    ratio = float(np.median(ratios))
    if ratio < LIKE_TRAIN:
        return None
    return Finding(
        rule="evaluation_in_training_mode",
        severity=0.9,
        summary="with dropout {dropout:.2g} the probe's loss is {ratio:.0%} of the train loss: "
        "it was evaluated in training mode",
        steps=(int(probe.steps[_late(probe)[0]]), int(probe.steps[-1])),
        evidence={"dropout": dropout, "ratio": ratio},
        confounders=("dropout at evaluation on purpose", "a probe that is not of the train set"),
    )


@rule(
    needs=("train/loss", "probe/loss"),
    tells="batch normalisation over single examples",
    explains=("plateau", "overfitting", "validation_shift"),
)
def batch_norm_of_one(telemetry: Telemetry) -> Finding | None:
    """Batch normalisation was trained on one example at a time, and evaluation suffers from it.

    Seen at the modules of sampled steps; over the last half of the evaluations the median of the
    probe's loss over the mean train loss since the evaluation before exceeds 1.5 (section 3 of
    docs/diagnosis.md, "to add"; the ratio is ours). Excluded: normalisation that is frozen in
    evaluation mode, statistics of several processes (`SyncBatchNorm`), runs it does not harm.
    """
    module = str(telemetry.header.get("batch_norm_of_one") or "")
    ratios = _probe_ratios(telemetry) if module else []
    ratio = float(np.median(ratios)) if ratios else 0.0
    if ratio <= HARMED:
        return None
    return Finding(
        rule="batch_norm_of_one",
        severity=0.9,
        summary="{layer} normalises over one example, and in evaluation mode the loss is "
        "{ratio:.1f} times that of training",
        steps=whole_run(telemetry),
        layer=module,
        evidence={"layer": module, "ratio": ratio},
        confounders=("a probe that is not of the train set",),
    )


def _late(evaluations: Series) -> range:
    """Which are the last half of them, without the first of all."""
    return range(max(1, len(evaluations) // 2), len(evaluations))


def _probe_ratios(telemetry: Telemetry) -> list[float]:
    """The probe's loss over the mean train loss since the evaluation before, of the last half."""
    train, probe = finite(telemetry["train/loss"]), finite(telemetry["probe/loss"])
    edges = np.searchsorted(train.steps, probe.steps)
    return [
        float(probe.values[i] / np.mean(train.values[edges[i - 1] : edges[i]]))
        for i in _late(probe)
        if edges[i] - edges[i - 1] >= 5
    ]
