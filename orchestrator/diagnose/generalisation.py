"""Rules about the distance between training and validation."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from orchestrator.diagnose.curves import finite, robust_std, trend
from orchestrator.diagnose.progress import share
from orchestrator.diagnose.registry import rule
from orchestrator.nouns import Finding, Floats, Ints, Series, Telemetry

GAP = 0.05
WIDE_GAP = 0.15
STALE = 3  # evaluations since the best one
FEWEST = 5  # evaluations that make a curve


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


@rule(needs=("val/loss", "probe/loss|train/loss"), tells="overfitting from learning")
def overfitting(telemetry: Telemetry) -> Finding | None:
    """Validation is left behind by a train set that is learned by heart.

    With accuracies (row 22 of docs/diagnosis.md): the gap exceeds 0.05 + 2 SE, the validation loss
    3x that of the train probe, and the validation minimum is 3 evaluations old or the gap exceeds
    0.15 + 2 SE (the source's 0.08 misses 150 digits; 0.05 raised no alarm: scripts/bench_rules.py).
    SE is binomial for the least number of examples that the accuracies allow. With losses alone
    (ours): the validation loss rose from its minimum by 10 % and 4 robust standard deviations of
    its jitter, steadily (t > 3), while the train loss went on falling by 10 %. Excluded: accuracy
    that still rises (calibration), a gap as wide from the first evaluations on (shift), a rise in
    one jump (changed data, schedule), a tiny validation set (SE), dropout (probe in eval mode).
    """
    pair = _paired(telemetry)
    if pair is None or len(pair.steps) < FEWEST or np.min(pair.val) <= 0:
        return None
    if _still_rising(pair.val_accuracy) or _in_one_jump(pair):
        return None
    end_val, end_train = float(np.median(pair.val[-3:])), float(np.median(pair.train[-3:]))
    age = len(pair.val) - 1 - pair.best
    evidence: dict[str, float | str] = {
        "val_loss": end_val,
        "train_loss": end_train,
        "best": float(pair.val[pair.best]),
        "rise": end_val / float(pair.val[pair.best]) - 1,
        "evaluations_since_best": float(age),
    }
    gap, margin = _accuracy_gap(pair)
    if gap is not None:
        evidence["accuracy_gap"] = gap
        stale = age >= STALE or gap > WIDE_GAP + margin
        fires = gap > GAP + margin and end_val > 3 * end_train and stale
        fires = fires and not _wide_from_the_start(pair)
        strength = gap / 0.3
        says = "accuracy on validation is {accuracy_gap:.2f} below train; losses {val_loss:.2g} "
        says += "and {train_loss:.2g}, the best validation {evaluations_since_best:.0f} "
        says += "evaluations ago"
    else:
        fires = age >= STALE and _rises_while_train_falls(pair)
        strength = end_val / float(pair.val[pair.best]) - 1
        says = "the validation loss rose {rise:.0%} above its best, {best:.3g}, "
        says += "{evaluations_since_best:.0f} evaluations ago, while the train loss fell on"
    if not fires:
        return None
    return Finding(
        rule="overfitting",
        severity=float(min(1.0, 0.4 + 0.6 * strength)),
        summary=says,
        steps=(int(pair.steps[pair.best]), int(pair.steps[-1])),
        evidence=evidence,
        confounders=("a validation set of another kind", "labels that are wrong in training"),
    )


def _paired(telemetry: Telemetry) -> Pair | None:
    """Validation beside the probe at the same steps, else beside train-mode losses around them."""
    val = finite(telemetry["val/loss"])
    if "probe/loss" in telemetry:
        train = finite(telemetry["probe/loss"])
    else:
        train = _averaged(finite(telemetry["train/loss"]), val)
    steps, at_val, at_train = np.intersect1d(val.steps, train.steps, return_indices=True)
    if not len(steps):
        return None
    return Pair(
        steps.astype(np.float64),
        train.values[at_train],
        val.values[at_val],
        _accuracies(telemetry, "probe/accuracy", steps),
        _accuracies(telemetry, "val/accuracy", steps),
    )


def _averaged(train: Series, val: Series) -> Series:
    """Mean of the per-step losses since the last evaluation, at each evaluation that has any."""
    edges = np.searchsorted(train.steps, val.steps, side="right")
    starts = np.concatenate([[0], edges[:-1]])
    filled = np.flatnonzero(edges > starts)
    means = [np.mean(train.values[starts[i] : edges[i]]) for i in filled]
    return Series(val.steps[filled], np.array(means), val.unit)


def _accuracies(telemetry: Telemetry, name: str, steps: Ints) -> Floats | None:
    if name not in telemetry:
        return None
    known = finite(telemetry[name])
    _, at, _ = np.intersect1d(known.steps, steps, return_indices=True)
    return share(known.values[at]) if len(at) == len(steps) else None


def _accuracy_gap(pair: Pair) -> tuple[float | None, float]:
    """Gap over the last 3 evaluations, and twice the standard error of the validation accuracy."""
    if pair.train_accuracy is None or pair.val_accuracy is None:
        return None, 0.0
    reached = float(np.median(pair.val_accuracy[-3:]))
    # Accuracies are k/N: the largest denominator seen is the least N that can have made them.
    n = max(Fraction(float(a)).limit_denominator(10_000).denominator for a in pair.val_accuracy)
    p = (reached * n + 2) / (n + 4)  # Agresti & Coull 1998: defined at 0 and 1
    gap = float(np.median(pair.train_accuracy[-3:])) - reached
    return gap, 2 * float(np.sqrt(p * (1 - p) / n))


def _still_rising(accuracy: Floats | None) -> bool:
    """Whether validation accuracy gained in the last third what its own jitter cannot explain."""
    if accuracy is None:
        return False
    late = accuracy[-max(5, len(accuracy) // 3) :]
    line = trend(np.arange(len(late), dtype=np.float64), late)
    return line.t > 3 and line.change > 0.01


def _in_one_jump(pair: Pair) -> bool:
    """Whether most of the rise since the best evaluation happened between two evaluations."""
    since = pair.val[pair.best :]
    rise = float(np.median(since[-3:]) - since[0])
    if len(since) < 5 or rise < 0.2 * since[0]:
        return False
    return float(np.max(np.diff(since))) > 0.7 * rise


def _wide_from_the_start(pair: Pair) -> bool:
    """Whether the gap was there in the first 2 evaluations: data of another kind (row 23)."""
    assert pair.train_accuracy is not None
    assert pair.val_accuracy is not None
    early = float(np.median((pair.train_accuracy - pair.val_accuracy)[:2]))
    late = float(np.median((pair.train_accuracy - pair.val_accuracy)[-3:]))
    return early > max(0.3, 0.6 * late)


def _rises_while_train_falls(pair: Pair) -> bool:
    steps, val = pair.steps[pair.best :], pair.val[pair.best :]
    jitter = robust_std(np.diff(pair.val[pair.best // 2 :])) / np.sqrt(2)
    rise = float(np.median(val[-3:]) - val[0])
    if rise < max(0.1 * float(val[0]), 4 * jitter) or trend(steps, val).t < 3:
        return False
    return float(np.median(pair.train[-3:])) < 0.9 * float(pair.train[pair.best])
