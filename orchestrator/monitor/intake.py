"""What goes into the step under way: its micro-batches, and what a GradScaler makes of it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torch import Tensor
from torch.amp.grad_scaler import GradScaler, OptState
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from orchestrator.monitor.values import Value


class MicroBatch(NamedTuple):
    """What the program said of one micro-batch; None where it did not."""

    id: str | None
    samples: Value | None
    tokens: Value | None


class Taken(NamedTuple):
    """What went into one step. `passes` is 0 where nobody could count them.

    `skipped` is how many steps the scaler skipped before this one.
    """

    batches: tuple[MicroBatch, ...]
    passes: int
    skipped: int


class Intake:
    """Counts until a step is over.

    A step that a GradScaler skips is none: what went into it is forgotten. Nothing tells of one but
    `scaler.update()`, which replaces a dictionary, without an optimizer's step before it.
    """

    def __init__(self, scaler: GradScaler | None) -> None:
        self.scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._states = self._current()
        self._has_stepped = False
        self._batches: list[MicroBatch] = []
        self._passes = [0, 0]
        self._skipped = 0

    def add(self, batch: MicroBatch) -> None:
        """Count a micro-batch."""
        self._look_for_update()
        self._batches.append(batch)

    def count_passes(
        self, parameters: Iterable[Tensor], optimizers: Sequence[Optimizer]
    ) -> list[RemovableHandle]:
        """Count backward passes by the first and by the last parameter that is optimized.

        Most passes reach both; the higher count stands. A hook on a module instead would be pickled
        and copied with it, and compiled with it by torch.compile.
        """
        optimized = {p for o in optimizers for group in o.param_groups for p in group["params"]}
        reached = [p for p in parameters if p in optimized and p.requires_grad]
        handles = []
        for end, parameter in enumerate(dict.fromkeys([*reached[:1], *reached[-1:]])):
            count = functools.partial(self._count_pass, end)
            handle = parameter.register_post_accumulate_grad_hook(count)  # type: ignore[no-untyped-call]
            handles.append(handle)
        return handles

    def _count_pass(self, end: int, _: Tensor) -> None:
        self._look_for_update()
        self._passes[end] += 1

    def see_step(self) -> None:
        """An optimizer has stepped."""
        self._has_stepped = True

    def take(self) -> Taken:
        """What went into the step that is over."""
        taken = Taken(tuple(self._batches), len(self._batches) or max(self._passes), self._skipped)
        self._batches.clear()
        self._passes[:] = 0, 0
        self._skipped = 0
        return taken

    def scale(self) -> Tensor | None:
        """A copy of the loss scale in force, on its device; None where nothing is scaled."""
        if self.scaler is None:
            return None
        scale = self.scaler._get_scale_async()  # `get_scale` would wait for the device
        return None if scale is None else scale.clone()

    def is_scaled(self, optimizers: Iterable[Optimizer]) -> bool:
        """Whether gradients are still multiplied with the loss scale: nobody unscaled them yet."""
        if self.scaler is None or self.scaler._get_scale_async() is None:
            return False
        states = (self.scaler._per_optimizer_states.get(id(each)) for each in optimizers)
        return any(state is None or state["stage"] is OptState.READY for state in states)

    def _look_for_update(self) -> None:
        states = self._current()
        if states is not self._states:
            self._states = states
            if not self._has_stepped:
                self._skipped += 1
                self._batches.clear()
                self._passes[:] = 0, 0
            self._has_stepped = False

    def _current(self) -> object:
        return None if self.scaler is None else self.scaler._per_optimizer_states
