"""The levels of an ablation: one documented rule per factor, from the baseline's own value."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Factor, Move, Scalar

UP, DOWN, EITHER = Move.UP, Move.DOWN, Move.EITHER


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules know of the baseline's trials; None and empty: not measured.

    `lr_sum` is the learning rate summed over all steps, `optimizer` the optimizer's class name,
    `thresholds` the clip thresholds proposed from the gradient norms, ascending (empty: the norms
    allow none, for the reason `refusal`; None: no norm was recorded).
    """

    total_steps: int | None = None
    optimizer: str = ""
    lr_sum: float | None = None
    thresholds: tuple[float, ...] | None = None
    refusal: str = ""


def levels(factor: Factor, move: Move, facts: Facts) -> tuple[Scalar, ...]:
    """Two or three levels of `factor` in the direction of `move`, ascending, None last.

    The user's own levels override the rule; numbers among them that lie the other way are left out.
    Never the baseline's value, never outside what the factor may be. Empty if nothing lies that
    way, or if the rule takes a measurement that is not there (clip: gradient norms, a warm-up in
    steps: their number).
    """
    if factor.levels:
        found = [v for v in factor.levels if v != factor.baseline and _lies(factor, v, move)]
    elif factor.name in RULES:
        found = [v for v in RULES[factor.name](factor, move, facts) if v != factor.baseline]
    else:
        raise OrchestratorError(
            f"factors.{factor.name}: there is no rule for its levels.",
            f"give factors.{factor.name}.levels, or use one of the names {', '.join(RULES)}",
        )
    return tuple(sorted(dict.fromkeys(found), key=_order))


def learning_rate(factor: Factor, move: Move, _: Facts) -> list[Scalar]:
    """x1/3, x1/10, x1/30 down; x3, x10, x30 up; x1/3 and x3 either way.

    Half decades, since a loss is flat within a factor of 3 around the best rate and rates that are
    wrong are often wrong by more than 10.
    """
    lr = _number(factor)
    if lr <= 0:
        raise OrchestratorError(
            f"factors.lr: {factor.key}={lr:g} cannot be scaled.", "give factors.lr.levels"
        )
    scales = {UP: (3.0, 10.0, 30.0), DOWN: (1 / 3, 1 / 10, 1 / 30), EITHER: (1 / 3, 3.0)}
    return [_rounded(lr * scale) for scale in scales[move]]


def weight_decay(factor: Factor, move: Move, facts: Facts) -> list[Scalar]:
    """From 0 three decades; from w > 0 x3, x10, x100 up, x0.1 and 0 down, x0.1 and x10 either way.

    Decoupled decay (AdamW) shrinks the weights by exp(-wd sum(lr)), so the middle decade is the one
    with wd sum(lr) nearest 0.3: on overfitted digits 0.2 to 2 helped, 0.02 did nothing. Without a
    learning rate on record, 0.01 to 1. A penalty in the gradient (SGD, Adam) is on the scale of the
    loss instead: 1e-4 to 1e-2, and 0.1 did harm at every learning rate tried.
    """
    decay = _number(factor)
    if decay > 0:
        scales = {UP: (3.0, 10.0, 100.0), DOWN: (0.1, 0.0), EITHER: (0.1, 10.0)}
        return [_rounded(decay * scale) for scale in scales[move]]
    if move is DOWN:
        return []
    if facts.optimizer and facts.optimizer.lower() != "adamw":
        return [1e-4, 1e-3, 1e-2]
    middle = round(math.log10(0.3 / facts.lr_sum)) if facts.lr_sum else -1
    return [_rounded(10.0**decade) for decade in (middle - 1, middle, middle + 1)]


def dropout(factor: Factor, move: Move, _: Facts) -> list[Scalar]:
    """+0.2 and +0.4 up, -0.2 and 0 down, 0.2 either way; within [0, 0.9)."""
    rate = _number(factor)
    steps = {UP: (0.2, 0.4), DOWN: (-0.2, -rate), EITHER: (-0.2, 0.2)}
    return [_rounded(rate + step) for step in steps[move] if 0 <= round(rate + step, 9) < 0.9]


def warmup(factor: Factor, move: Move, facts: Facts) -> list[Scalar]:
    """5 % and 20 % of the training from 0; x2 and x4 from there on, x1/2 and 0 down.

    A number below 1 that is no integer (0.0 too) is a share of the training, and stays at or below
    0.5; an integer is steps, any other number keeps the unit that the user gave it.
    """
    length = _number(factor)
    is_share = isinstance(factor.baseline, float) and length < 1
    if length == 0:
        if move is DOWN:
            return []
        if is_share:
            return [0.05, 0.2]
        total = facts.total_steps
        return [max(1, round(share * total)) for share in (0.05, 0.2)] if total else []
    scales = {UP: (2.0, 4.0), DOWN: (0.5, 0.0), EITHER: (0.5, 2.0)}
    found = [length * scale for scale in scales[move]]
    if is_share:
        return [_rounded(value) for value in found if value <= 0.5]
    return [round(v) if isinstance(factor.baseline, int) else _rounded(v) for v in found]


def clip(factor: Factor, move: Move, facts: Facts) -> list[Scalar]:
    """Thresholds proposed from the unclipped norms (plan/clip), and off.

    Off: the proposed ones, and nothing can be raised. On, up: x10, the lightest proposed one and
    off, for a threshold that is too tight; down: those below the present one, or without recorded
    norms x1/3 and x1/10; either way: all that differ from the present one by over 5 %, and off.
    """
    proposed = [_rounded(v) for v in facts.thresholds or ()]
    if not factor.baseline:
        return [] if move is UP else [*proposed]
    present = _number(factor)
    if move is UP:
        higher = [v for v in (_rounded(10 * present), *proposed[-1:]) if v > 1.05 * present]
        return [*higher, None]
    if move is EITHER:
        return [*(v for v in proposed if not 0.95 <= v / present <= 1.05), None]
    if facts.thresholds is None:
        return [_rounded(present / 3), _rounded(present / 10)]
    return [v for v in proposed if v < 0.95 * present]


RULES: dict[str, Callable[[Factor, Move, Facts], list[Scalar]]] = {
    "lr": learning_rate,
    "weight_decay": weight_decay,
    "dropout": dropout,
    "warmup": warmup,
    "clip": clip,
}
"""The rule of every factor name that has a meaning of ours."""


def _number(factor: Factor) -> float:
    value = factor.baseline
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise OrchestratorError(
            f"factors.{factor.name}: the baseline's {factor.key}={value!r} is no number, so no "
            "levels can be derived from it.",
            f"give factors.{factor.name}.levels, or a number in the baseline",
        )
    return float(value)


def _lies(factor: Factor, level: Scalar, move: Move) -> bool:
    """Whether a level lies in the direction of the move; what is no number lies everywhere."""
    both = (level, factor.baseline)
    if move is EITHER or any(isinstance(v, bool) or not isinstance(v, int | float) for v in both):
        return True
    return (float(level) > float(factor.baseline)) == (move is UP)  # type: ignore[arg-type]


def _rounded(value: float) -> float:
    """Three significant digits: 0.009, not 0.009000000000000001."""
    return float(f"{value:.3g}")


def _order(level: Scalar) -> tuple[int, float, str]:
    if isinstance(level, bool | str) or level is None:
        return (2 if level is None else 1, 0.0, str(level))
    return (0, float(level), "")
