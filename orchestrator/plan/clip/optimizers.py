"""What a threshold means under the optimizer at hand."""

from __future__ import annotations

from enum import Enum

from orchestrator.clip_nouns import CONTROL


class Family(Enum):
    """How an optimizer uses the size of the gradient."""

    SGD = "proportional to the gradient"
    ADAM = "divides by its own second moment"
    SIGN = "uses the direction only"
    OTHER = "unknown"


_FAMILIES = {
    Family.ADAM: (
        "adam", "adamw", "nadam", "radam", "adamax", "adafactor", "rmsprop", "adagrad", "adadelta",
        "lamb", "amsgrad", "fusedadam", "adamw8bit", "adam8bit", "sparseadam",
    ),
    Family.SIGN: ("lion", "muon", "signsgd", "signum", "rprop", "lars", "normuon"),
    Family.SGD: ("sgd", "asgd", "momentum", "nesterov"),
}  # fmt: skip

EPSILON = 1e-8
"""PyTorch's default for Adam and AdamW (2.13)."""

STARVING = 1e3
"""Root mean square gradient, in epsilons, below which epsilon shrinks Adam's updates (clip.md)."""

SAME_LR = 0.05
"""A learning rate within 5 % is the same: a control at it would be no clipping once more."""

INERT = 0.5  # clip ratio above which scaling is nearly constant and Adam divides it out again


def family(optimizer: str | None) -> Family:
    """The family of an optimizer by its name; exact, but for case, `_` and `-`."""
    name = (optimizer or "").rpartition(".")[2].lower().replace("_", "").replace("-", "")
    return next((f for f, names in _FAMILIES.items() if name in names), Family.OTHER)


def candidate_remarks(
    kind: Family, *, max_norm: float, ratio: float, removed: float, lr_factor: float,
    n_parameters: int | None, eps: float | None,
) -> tuple[str, ...]:  # fmt: skip
    """What one threshold does under an optimizer that a clip ratio does not tell."""
    remarks = []
    if kind is Family.ADAM:
        if ratio > INERT:
            remarks.append(
                f"clips {ratio:.0%} of the steps: under Adam this is nearly inert, for a constant "
                "factor on the gradient cancels"
            )
        rms = None if not n_parameters else max_norm / n_parameters**0.5
        if rms is not None and rms < STARVING * (eps or EPSILON):
            remarks.append(
                f"max_norm / sqrt(parameters) = {rms:.1g} is below {STARVING:.0e} x eps "
                f"({eps or EPSILON:.0e}): epsilon starves the updates"
            )
    if kind is Family.SGD and removed > CONTROL and lr_factor < 1 - SAME_LR:
        remarks.append(
            f"removes {removed:.0%} of the update: a hidden cut of the learning rate. Test it "
            f"against no clipping at LR x {lr_factor:.2f}"
        )
    elif kind is Family.SGD and removed > CONTROL:
        remarks.append(
            f"removes {removed:.0%} of the summed norm, all in rare steps: no hidden cut of the "
            f"learning rate (x {lr_factor:.2f})"
        )
    return tuple(remarks)


def remarks(kind: Family, *, has_spikes: bool) -> tuple[str, ...]:
    """What holds for any threshold under an optimizer."""
    if kind is Family.SIGN:
        return (
            "This optimizer uses the direction of the gradient only: clipping its magnitude "
            "changes "
            "next to nothing. A bad batch is better skipped.",
        )
    if kind is Family.ADAM:
        poisoned = (
            "A spike stays in Adam's second moment: one step of 100x leaves updates at half size "
            "300 "
            "steps later (beta2 = 0.999). Clipping removes that.",
        )
        return (
            *(poisoned if has_spikes else ()),
            "Changing beta2 or the LR voids this calibration.",
        )
    return ("Changing the batch size, the LR or the optimizer voids this calibration.",)
