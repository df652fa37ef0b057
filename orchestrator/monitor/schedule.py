"""When layers are looked at, and for what: a function of the step."""

from __future__ import annotations

from typing import NamedTuple

from orchestrator.nouns import Level, Monitoring

_EARLY_STEPS, _EARLY_EVERY = 60, 2
"""The first 60 steps tell whether the learning rate is too high, so they are sampled more often."""

_HISTOGRAM_STEPS = (0, 100, 10_000)


class Sample(NamedTuple):
    """What a step's layers are looked at for.

    `measures`: norms. `details`: shares of zeros, counts of what is not finite, and cosines with
    the step before, which was to be kept for that. `keeps`: the next step will ask for them.
    """

    measures: bool = False
    details: bool = False
    keeps: bool = False
    histograms: bool = False

    @property
    def is_wanted(self) -> bool:
        """Whether the layers are looked at at all."""
        return self.measures or self.keeps


class Schedule:
    """What each step of a training is sampled for; nothing before its first step is known."""

    def __init__(self, monitoring: Monitoring) -> None:
        self._monitoring = monitoring
        self._is_full = monitoring.level is Level.FULL
        self.sees_layers = monitoring.level in (Level.DEFAULT, Level.FULL)
        self.first: int | None = None

    def at(self, step: int) -> Sample:
        """What is wanted of `step`."""
        if not self.sees_layers:
            return Sample()
        measures = self._is_measured(step)
        if not self._is_full:
            return Sample(measures)
        return Sample(measures, measures, self._is_measured(step + 1), self._is_counted(step))

    def has_norms(self, step: int) -> bool:
        """Whether the norm of all gradients is wanted of `step`."""
        return self.sees_layers or self._is_due(step)

    def _is_measured(self, step: int) -> bool:
        return self._is_due(step) or self._is_counted(step)

    def _is_due(self, step: int) -> bool:
        every = self._monitoring.interval
        if self.first is not None and step - self.first < _EARLY_STEPS:
            every = min(every, _EARLY_EVERY)
        return step % every == 0

    def _is_counted(self, step: int) -> bool:
        """Whether histograms are taken."""
        return self._is_full and (
            step in _HISTOGRAM_STEPS or step % self._monitoring.histograms == 0
        )
