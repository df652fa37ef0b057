"""Plain facts of a log that a rule can use, and what a reader of the answer should be warned of.

| fact | meaning |
|--|--|
| `n_train`, `n_eval` | points of `train/loss`, and of the longest validation series |
| `first`, `last` | first and last position on the axis |
| `epochs` | epochs trained, if the log tells them |
| `max_steps`, `max_epochs` | what was planned, if the log tells it |
| `stopped_early` | the last position lies over 2 % before what was planned |
| `first_loss_ratio` | first train loss over the median of the next ten |
| `zero_losses` | points at which the train loss is exactly 0 |
| `zero_loss_nan_gradient` | of these, those with a gradient norm of NaN, inf or 0 |
| `nonfinite/<series>` | values of a series that are NaN or infinite |
| `loss_quantum` | the train loss was rounded to multiples of this |
| `lr_always_zero` | the learning rate is 0 in every row |
| `constant` | measured series that never change |
| `not_computed` | series in which 0 stood for "not computed", and was left out |
| `resumed_at` | steps from which the run was resumed |
| `is_adversarial` | there are generator and discriminator losses |
| `val_is_test` | the validation series are a test set's |
| `loss_is_sum` | `train/loss` was added up from components |
| `after_fit/<series>` | a second evaluation after the last step, of another split or checkpoint |
| `summary/<name>` | values of a closing summary row |
| `param/<name>` | parameters stored beside the metrics |
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from orchestrator.nouns import Floats, Scalar, Series
from orchestrator.telemetry.readers.axis import STEP
from orchestrator.telemetry.readers.checks import is_measured

_NEXT = 10
_DECIMALS = range(6)
_COARSE = 20
"""A loss is called rounded if it comes within this many units of its last decimal."""

_EARLY = 0.98


def facts_of(
    series: Mapping[str, Series], axis: str, known: Mapping[str, Scalar]
) -> dict[str, Scalar]:
    """Facts computed from the curves; `known` are those that the file told."""
    facts = dict(known)
    losses = {role: s for role, s in series.items() if is_measured(role)}
    train = series.get("train/loss") or _longest(losses, "train/")
    facts["n_train"] = len(train) if train else 0
    validation = _longest(losses, "val/")
    facts["n_eval"] = len(validation) if validation else 0
    steps = [s.steps for s in losses.values()]
    facts["first"] = int(min(s[0] for s in steps))
    facts["last"] = int(max(s[-1] for s in steps))
    if "epoch" in series and np.isfinite(series["epoch"].values).any():
        facts["epochs"] = float(np.nanmax(series["epoch"].values))
    _planned(facts, axis)
    for role, curve in losses.items():
        if count := int((~np.isfinite(curve.values)).sum()):
            facts[f"nonfinite/{role}"] = count
    constant = [r for r, s in losses.items() if len(s) > 2 and np.ptp(s.values) == 0]
    if constant:
        facts["constant"] = ", ".join(constant)
    if "lr" in series and not series["lr"].values.any():
        facts["lr_always_zero"] = True
    if "train/loss" in series:
        facts |= _facts_of_loss(series["train/loss"], series.get("grad_norm"))
    return facts


def warnings_of(facts: Mapping[str, Scalar], series: Mapping[str, Series]) -> list[str]:
    """What the facts mean for somebody who reads the curves."""
    warnings = []
    for name, count in facts.items():
        if name.startswith("nonfinite/"):
            role = name.removeprefix("nonfinite/")
            warnings.append(f"{role}: {count} of {len(series[role])} values are NaN or infinite")
    if facts.get("zero_loss_nan_gradient"):
        count = facts["zero_loss_nan_gradient"]
        note = "a trainer's NaN filter writes 0 for NaN"
        warnings.append(
            f"train/loss is exactly 0 in {count} rows without a usable gradient: {note}"
        )
    elif 0 < int(facts.get("zero_losses") or 0) < len(series["train/loss"]):
        at = series["train/loss"].steps[series["train/loss"].values == 0]
        warnings.append(f"train/loss is exactly 0 at {len(at)} step(s), first {at[0]}: a glitch?")
    if "loss_quantum" in facts:
        warnings.append(f"train/loss was rounded to {facts['loss_quantum']:g}")
    if facts.get("lr_always_zero"):
        warnings.append("the learning rate is 0 in every row")
    if "constant" in facts:
        warnings.append(f"constant throughout: {facts['constant']}")
    return warnings


def _facts_of_loss(loss: Series, grad_norm: Series | None) -> dict[str, Scalar]:
    facts: dict[str, Scalar] = {}
    finite = loss.values[np.isfinite(loss.values)]
    if len(finite) > 3 and (typical := float(np.median(np.abs(finite[1 : 1 + _NEXT])))) > 0:
        facts["first_loss_ratio"] = float(finite[0] / typical)
    zero = loss.values == 0
    if zero.any():
        facts["zero_losses"] = int(zero.sum())
        if grad_norm is not None:
            at = np.isin(grad_norm.steps, loss.steps[zero])
            unusable = ~np.isfinite(grad_norm.values) | (grad_norm.values == 0)
            facts["zero_loss_nan_gradient"] = int((at & unusable).sum())
    if quantum := _quantum(finite):
        facts["loss_quantum"] = quantum
    return facts


def _quantum(values: Floats) -> float:
    """Unit of the last decimal that was written, if small values come close to it; else 0."""
    magnitudes = np.abs(values[values != 0])
    if len(magnitudes) < 5 or magnitudes.max() > 1e6:
        return 0.0
    for decimals in _DECIMALS:
        unit = 10.0**-decimals
        if np.allclose(values, np.round(values, decimals), rtol=0, atol=unit * 1e-6):
            close = decimals > 0 and np.quantile(magnitudes, 0.1) < _COARSE * unit
            return unit if close else 0.0
    return 0.0


def _planned(facts: dict[str, Scalar], axis: str) -> None:
    """Compare with the plan in the axis' own unit; steps and epochs may be numbered from 0."""
    planned = facts.get("max_steps" if axis == STEP else "max_epochs")
    done = facts["last"]
    if not isinstance(planned, int | float) and isinstance(facts.get("max_epochs"), int | float):
        planned, done = facts["max_epochs"], facts.get("epochs")
    if isinstance(planned, int | float) and isinstance(done, int | float) and 0 < planned < np.inf:
        facts["stopped_early"] = bool(done + 1 < _EARLY * planned)


def _longest(series: Mapping[str, Series], prefix: str) -> Series | None:
    found = [s for role, s in series.items() if role.startswith(prefix)]
    return max(found, key=len, default=None)
