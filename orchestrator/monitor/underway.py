"""The optimizer step under way: what is known of it until it is over."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from orchestrator.monitor.intake import Intake
from orchestrator.monitor.measures import HALVES
from orchestrator.monitor.probe import Probe
from orchestrator.monitor.steps import Gradients, StepRow
from orchestrator.monitor.values import Value

_LOOKS = 3
"""Enough to know whether a loop multiplies gradients after it clipped them; each costs a norm."""

CLIPPED_SCALED = (
    "gradients are clipped while they are multiplied with the loss scale, so that the threshold is"
    " another whenever the scale changes; call scaler.unscale_(optimizer) before. The norms that"
    " are recorded are those of the unscaled gradients"
)


class _Clip(NamedTuple):
    gradients: tuple[Gradients, ...]
    total: Tensor | None
    max_norm: float | None
    is_scaled: bool


class StepUnderWay:
    """Gathers what goes into a step, and is empty again once that was taken."""

    def __init__(
        self,
        names: Mapping[Tensor, str],
        optimizers: Sequence[Optimizer],
        scaler: GradScaler | None,
    ) -> None:
        self._names = names
        self._all_names = tuple(names.values())
        self._optimizers = optimizers
        self.intake = Intake(scaler)
        self._clip: _Clip | None = None
        self._gradients: dict[int, Gradients] = {}  # by the probe's id
        self._applied: list[Gradients] = []
        self._looks = 0
        self._scale: Tensor | None = None
        self._overflow: Tensor | None = None

    @property
    def is_clipped(self) -> bool:
        """Whether `clip_grad_norm_` was called."""
        return self._clip is not None

    def see_clip(
        self, total: Tensor | None, max_norm: float | None, each: Tensor | None
    ) -> Tensor | None:
        """Keep the norm of gradients about to be clipped; the loss scale, if that is still in them.

        `each` [n] are the norms of the model's single gradients, where they are known.
        """
        named = None if each is None else self.by_name(each)
        gradients = (named,) if named else tuple(self._gradients.values())
        # In half precision the total is torch's to the bit, and not the sum of rounded norms.
        is_exact = named is not None and named.norms.dtype not in HALVES
        kept = None if is_exact or total is None else total.detach().clone()
        is_scaled = self.intake.is_scaled(self._optimizers)
        self._clip = _Clip(gradients, kept, max_norm, is_scaled)
        if not is_scaled:
            return None
        self._scale = self.intake.scale()
        return self._scale

    def see_gradients(self, probe: Probe) -> Gradients | None:
        """Keep the norms of the gradients that an optimizer applies, and return them."""
        gradients = probe.gradient_norms()
        if gradients is not None:
            self._gradients[id(probe)] = gradients
        return gradients

    def see_applied(self, probe: Probe) -> None:
        """Keep the norms of gradients after clipping, in the first few steps only."""
        gradients = probe.gradient_norms() if self._looks < _LOOKS else None
        if gradients is not None:
            self._looks += 1
            self._applied.append(gradients)

    def see_scale(self, optimizer: Optimizer) -> Tensor | None:
        """Keep the loss scale in force; it is returned if gradients were clipped with it in them.

        A GradScaler leaves the scale, and whether anything overflowed, to fused optimizers.
        """
        if self._scale is None:
            self._scale = self.intake.scale()
        overflow = getattr(optimizer, "found_inf", None)
        if overflow is not None:
            self._overflow = overflow if self._overflow is None else self._overflow + overflow
        scale: Tensor | None = getattr(optimizer, "grad_scale", None)
        if scale is None:
            return None
        if self._scale is None:
            self._scale = scale
        if self._clip is None or self._clip.is_scaled:
            return None
        self._clip = self._clip._replace(is_scaled=True)
        return scale

    def take(self, step: int, seconds: float) -> StepRow:
        """The step, which is over."""
        clip = self._clip or _Clip(tuple(self._gradients.values()), None, None, is_scaled=False)
        row = StepRow(
            step,
            seconds,
            tuple(_lr(group) for each in self._optimizers for group in each.param_groups),
            clip.gradients,
            clip.total,
            tuple(self._applied),
            math.nan if clip.max_norm is None else clip.max_norm,
            clip.is_scaled,
            self._scale,
            self._overflow,
            self.intake.take(),
        )
        self._clip = self._scale = self._overflow = None
        self._gradients.clear()
        self._applied.clear()
        return row

    def by_name(self, each: Tensor) -> Gradients | None:
        """Norms [n] of the model's gradients, if it is known which is which's."""
        names, count = self._all_names, each.numel()
        if count != len(names):  # a layer without a gradient, or a new one
            names = tuple(name for p, name in self._names.items() if p.grad is not None)
        return Gradients(names, each) if count == len(names) else None


def has_gradients_later(
    optimizer: Optimizer, args: tuple[object, ...], kwargs: dict[str, object]
) -> bool:
    """Whether `step` makes its gradients (in a closure) or unscales them (fused, GradScaler)."""
    closure = args[1] if len(args) > 1 else kwargs.get("closure")
    return closure is not None or getattr(optimizer, "grad_scale", None) is not None


def _lr(group: Mapping[str, float | Tensor]) -> Value:
    lr = group.get("lr", math.nan)
    return lr.detach().clone() if isinstance(lr, Tensor) else float(lr)
