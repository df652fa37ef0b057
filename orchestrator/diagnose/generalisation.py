"""Rules about the distance between training and validation."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from orchestrator.diagnose.curves import trend
from orchestrator.diagnose.progress import progress, share
from orchestrator.diagnose.registry import rule
from orchestrator.nouns import Finding, Floats, Ints, Series, Telemetry
from orchestrator.telemetry.robust import finite, robust_std

GAP = 0.05
WIDE_GAP = 0.15
STALE = 3  # evaluations since the best one
FEWEST = 5  # evaluations that make a curve

WITH_ACCURACY = (
    "accuracy on validation is {accuracy_gap:.2f} below train; losses {val_loss:.2g} and "
    "{train_loss:.2g}, the best validation {evaluations_since_best:.0f} evaluations ago"
)
LOSSES_ALONE = (
    "the validation loss is {rise:.0%} above its best, {best:.3g}, of "
    "{evaluations_since_best:.0f} evaluations ago; the train loss fell to {train_loss:.2g}"
)


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Train and validation at common steps [n]; accuracies as shares, or None."""

    steps: Floats
    train: Floats
    val: Floats
    train_accuracy: Floats | None
    val_accuracy: Floats | None

    @property
    def best(self) -> int:
        """Where the validation loss is lowest."""
        return int(np.argmin(self.val))

    @property
    def best_val(self) -> float:
        """The lowest validation loss."""
        return float(self.val[self.best])

    @property
    def age(self) -> int:
        """Evaluations since the best one."""
        return len(self.val) - 1 - self.best

    @property
    def end_val(self) -> float:
        """Median of the last 3 validation losses."""
        return float(np.median(self.val[-3:]))

    @property
    def end_train(self) -> float:
        """Median of the last 3 train losses."""
        return float(np.median(self.train[-3:]))

    def evidence(self) -> dict[str, float | str]:
        """What a finding tells of the losses."""
        return {
            "val_loss": self.end_val,
            "train_loss": self.end_train,
            "best": self.best_val,
            "rise": self.end_val / self.best_val - 1,
            "evaluations_since_best": float(self.age),
        }


@rule(needs=("val/loss", "probe/loss|train/loss"), tells="overfitting from learning")
def overfitting(telemetry: Telemetry) -> Finding | None:
    """Validation is left behind by a train set that is learned by heart.

    With validation accuracy (row 22 of docs/diagnosis.md): the gap exceeds 0.05 + 2 SE, the
    validation loss 3x that of the train probe, and the validation minimum is 3 evaluations old or
    the gap exceeds 0.15 + 2 SE (the source's 0.08 misses 150 digits; 0.05 raised no alarm:
    scripts/bench_rules.py). SE is binomial for the least number of examples that the accuracies
    allow. With losses alone (ours): the gap exceeds 7 % of the start loss, the train loss is
    below 80 % of it, the minimum is 3 evaluations old, and the validation loss is either 3x the
    train loss with a gap of 10 %, or rose steadily (t > 3) by 10 % and 4 robust standard
    deviations of its jitter while the train loss fell by 10 %. Excluded: accuracy that still rises
    (calibration), a gap as wide from the first evaluations on (shift), a constant ratio of the
    losses (accumulation), a rise in one jump (changed data, schedule), a tiny validation set (SE),
    dropout (probe in eval mode).
    """
    pair = _paired(telemetry)
    if pair is None or len(pair.steps) < FEWEST or np.min(pair.val) <= 0:
        return None
    if _still_rising(pair.val_accuracy) or _in_one_jump(pair):
        return None
    gap, margin = _accuracy_gap(pair)
    if gap is None:
        fires, strength = _leaves_train_behind(pair, telemetry), pair.end_val / pair.best_val - 1
    else:
        fires, strength = _gapes(pair, gap, margin), gap / 0.3
    if not fires:
        return None
    evidence = pair.evidence()
    return Finding(
        rule="overfitting",
        severity=float(min(1.0, 0.4 + 0.6 * strength)),
        summary=LOSSES_ALONE if gap is None else WITH_ACCURACY,
        steps=(int(pair.steps[pair.best]), int(pair.steps[-1])),
        evidence=evidence | ({} if gap is None else {"accuracy_gap": gap}),
        confounders=("a validation set of another kind", "labels that are wrong in training"),
    )


def _paired(telemetry: Telemetry) -> Pair | None:
    """Validation beside the probe at the same steps, else beside train-mode values around them."""
    val = finite(telemetry["val/loss"])
    if "probe/loss" in telemetry:
        train = finite(telemetry["probe/loss"])
    else:
        train = _averaged(finite(telemetry["train/loss"]), val)
    steps, at_val, at_train = np.intersect1d(val.steps, train.steps, return_indices=True)
    if not len(steps):
        return None
    accuracies = {n: telemetry[n] for n in ("probe/accuracy", "val/accuracy") if n in telemetry}
    if "probe/accuracy" not in accuracies and "train/accuracy" in telemetry:
        accuracies["probe/accuracy"] = _averaged(finite(telemetry["train/accuracy"]), val)
    return Pair(
        steps.astype(np.float64),
        train.values[at_train],
        val.values[at_val],
        _at(steps, accuracies.get("probe/accuracy")),
        _at(steps, accuracies.get("val/accuracy")),
    )


def _averaged(train: Series, val: Series) -> Series:
    """Mean of the per-step values since the last evaluation, at each evaluation that has any."""
    edges = np.searchsorted(train.steps, val.steps, side="right")
    starts = np.concatenate([[0], edges[:-1]])
    filled = np.flatnonzero(edges > starts)
    means = [np.mean(train.values[starts[i] : edges[i]]) for i in filled]
    return Series(val.steps[filled], np.array(means), val.unit)


def _at(steps: Ints, accuracy: Series | None) -> Floats | None:
    """Accuracies at exactly these steps as shares, or None if one is missing."""
    if accuracy is None:
        return None
    known = finite(accuracy)
    _, at, _ = np.intersect1d(known.steps, steps, return_indices=True)
    return share(known.values[at]) if len(at) == len(steps) else None


def _accuracy_gap(pair: Pair) -> tuple[float | None, float]:
    """Gap over the last 3 evaluations, and twice the standard error of the validation accuracy.

    Where train accuracy was not recorded, it is at least 1 - loss / ln 2: an example that is
    misclassified has a probability below one half, hence a cross-entropy above ln 2.
    """
    if pair.val_accuracy is None:
        return None, 0.0
    reached = float(np.median(pair.val_accuracy[-3:]))
    train = 1 - pair.train / np.log(2) if pair.train_accuracy is None else pair.train_accuracy
    # Accuracies are k/N: the largest denominator seen is the least N that can have made them.
    n = max(Fraction(float(a)).limit_denominator(10_000).denominator for a in pair.val_accuracy)
    p = (reached * n + 2) / (n + 4)  # Agresti & Coull 1998: defined at 0 and 1
    gap = float(np.median(train[-3:])) - reached
    return gap, 2 * float(np.sqrt(p * (1 - p) / n))


def _gapes(pair: Pair, gap: float, margin: float) -> bool:
    """The verdict where validation accuracy is known: see `overfitting`."""
    stale = pair.age >= STALE or gap > WIDE_GAP + margin
    wide = gap > GAP + margin and pair.end_val > 3 * pair.end_train
    return wide and stale and not _wide_from_the_start(pair)


def _still_rising(accuracy: Floats | None) -> bool:
    """Whether validation accuracy gained in the last third what its own jitter cannot explain."""
    if accuracy is None:
        return False
    late = accuracy[-max(5, len(accuracy) // 3) :]
    line = trend(np.arange(len(late), dtype=np.float64), late)
    return line.t > 3 and line.change > 0.01


def _in_one_jump(pair: Pair) -> bool:
    """Whether most of the rise since the best evaluation is a step between two evaluations.

    Levels are medians of the 3 evaluations on either side, so that a lucky best one makes no step.
    """
    rise = pair.end_val - pair.best_val
    if pair.age < 4 or rise < 0.2 * pair.best_val:
        return False
    at = pair.best + 1 + int(np.argmax(np.diff(pair.val[pair.best :])))
    before, after = np.median(pair.val[max(0, at - 3) : at]), np.median(pair.val[at : at + 3])
    steps = pair.val[at] - pair.val[at - 1] > 0.7 * rise and after - before > 0.5 * rise
    return bool(steps and pair.end_val - after < 0.3 * rise)


def _wide_from_the_start(pair: Pair) -> bool:
    """Whether the gap was there in the first 2 evaluations: data of another kind (row 23)."""
    if pair.train_accuracy is None or pair.val_accuracy is None:
        return False
    early = float(np.median((pair.train_accuracy - pair.val_accuracy)[:2]))
    late = float(np.median((pair.train_accuracy - pair.val_accuracy)[-3:]))
    return early > max(0.3, 0.6 * late)


def _leaves_train_behind(pair: Pair, telemetry: Telemetry) -> bool:
    """The verdict on losses alone: see `overfitting`."""
    course = progress(telemetry)
    start = course.start if course else float(pair.val[0])
    if start <= 0:
        return False
    gap = (pair.end_val - pair.end_train) / start
    if pair.age < STALE or gap < 0.07 or pair.end_train > 0.8 * start:
        return False
    ratio = pair.val / np.maximum(pair.train, 1e-12)
    early = float(np.median(ratio[:2]))
    if early > 2.5 or np.median(ratio[-3:]) < 1.5 * early:  # losses summed in two ways
        return False
    if gap > 0.1 and pair.end_val > 3 * pair.end_train:
        return True
    steps, val = pair.steps[pair.best :], pair.val[pair.best :]
    jitter = robust_std(np.diff(pair.val[pair.best // 2 :])) / np.sqrt(2)
    rises = pair.end_val - val[0] > max(0.1 * float(val[0]), 4 * jitter)
    return rises and trend(steps, val).t > 3 and pair.end_train < 0.9 * pair.train[pair.best]
