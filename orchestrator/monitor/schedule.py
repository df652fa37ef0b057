"""Which steps are looked at closely."""

from __future__ import annotations

_EARLY_STEPS, _EARLY_EVERY = 60, 2
"""The first 60 steps tell whether the learning rate is too high, so they are sampled more often."""


def is_due(step: int, first: int | None, every: int) -> bool:
    """Whether `step` is one of every so many; `first` is the first step that was seen, if any."""
    is_early = first is not None and step - first < _EARLY_STEPS
    return step % (min(every, _EARLY_EVERY) if is_early else every) == 0
