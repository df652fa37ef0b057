"""What thresholds would do: pooled over pilots, forecast, per stage, and on the recorded steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.clip_nouns import Candidate, ClipEvidence, Stage
from orchestrator.nouns import ClipRatio, ClipStage, Floats
from orchestrator.plan.clip import forecast, optimizers
from orchestrator.plan.clip.backtest import level_spread, widening
from orchestrator.plan.clip.calibration import Calibration
from orchestrator.plan.clip.candidates import ORDER, Threshold, merged, thresholds
from orchestrator.plan.clip.pilot import Pilot
from orchestrator.plan.clip.robust import variance_inflation
from orchestrator.plan.clip.stable import TOLERANCE

STAGES = ("early", "middle", "late")
MOST_PARTS, SMALLEST_PART = 10, 50  # of a training that is forecast; steps of one
GRID = 60  # thresholds of the curve of clip ratio against max_norm
Z90 = 1.6449  # two-sided 90 % of the normal law


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """Simulated clip ratios of any set of log thresholds, over one or several pilots."""

    pilots: tuple[Pilot, ...]
    horizon: int

    @property
    def calibrations(self) -> tuple[Calibration, ...]:
        """Those of the pilots; every one has one."""
        return tuple(p.calibration for p in self.pilots if p.calibration is not None)

    def simulated(self, log_thresholds: Floats, rng: np.random.Generator) -> Floats:
        """[replicates, thresholds] shares; pilots are mixed, and their levels' spread is added."""
        between = 0.0
        if len(self.calibrations) > 1:
            between = float(np.std([c.level.value for c in self.calibrations], ddof=1))
        return np.concatenate([
            forecast.ratios(
                c.residuals,
                c.level,
                log_thresholds,
                horizon=self.horizon,
                extra=float(
                    np.hypot(
                        between, level_spread(c, list(p.backtest.level_errors), self.horizon)
                    )
                ),
                rng=rng,
            )
            for p, c in zip(self.pilots, self.calibrations, strict=True)
        ])  # fmt: skip


def pooled_thresholds(calibrations: Sequence[Calibration]) -> tuple[Threshold, ...]:
    """Candidates of each name, averaged over pilots in the log; a quantile if all agree."""
    if len(calibrations) == 1:
        return thresholds(calibrations[0])
    together = sum(c.n_eff for c in calibrations)
    every = [t for c in calibrations for t in thresholds(c, n_eff=together)]
    found = []
    for name in ORDER:
        same = [t for t in every if t.name == name]
        if 2 * len(same) > len(calibrations):
            quantiles = {t.quantile for t in same}
            quantile = same[0].quantile if len(quantiles) == 1 else None
            found.append(Threshold(name, float(np.mean([t.log_norm for t in same])), quantile))
    return merged(found)


def stages(pilot: Pilot) -> tuple[Stage, ...]:
    """The pilot after its ramp in three equal parts."""
    assert pilot.calibration is not None
    steps = pilot.checked.steps[pilot.calibration.ramp_end :]
    parts = np.array_split(steps, len(STAGES))
    return tuple(Stage(name, int(p[0]), int(p[-1])) for name, p in zip(STAGES, parts, strict=True))


def candidate(
    t: Threshold, ratio: ClipRatio, outlook: Outlook, *, raised: float, optimizer: str | None,
    n_parameters: int | None, eps: float | None,
) -> Candidate:  # fmt: skip
    """A threshold with everything that is said of it; `raised` is its lift for a whole training."""
    left, factor = kept(outlook.calibrations, t.log_norm)
    return Candidate(
        name=t.name,
        max_norm=float(np.exp(t.log_norm)),
        from_start=float(np.exp(t.log_norm + raised)),
        quantile=t.quantile,
        clip_ratio=ratio,
        stage_ratios=_stage_ratios(outlook.calibrations, t.log_norm),
        spikes_to=_spikes_to(outlook.calibrations, t.log_norm),
        update_removed=1 - left,
        lr_factor=factor,
        remarks=optimizers.candidate_remarks(
            optimizers.family(optimizer),
            max_norm=float(np.exp(t.log_norm)),
            ratio=ratio.median,
            removed=1 - left,
            lr_factor=factor,
            n_parameters=n_parameters,
            eps=eps,
        ),
    )


def kept(calibrations: Sequence[Calibration], log_norm: float) -> tuple[float, float]:
    """Share of the summed norm that is left, and the mean of min(1, max_norm / norm)."""
    excess = np.concatenate([
        c.log_norms[c.window.first : c.window.last] - log_norm for c in calibrations
    ])  # fmt: skip
    factor = np.exp(-np.maximum(excess, 0.0))
    weight = np.exp(excess - excess.max())  # norms up to a constant that cannot overflow
    return float((weight * factor).sum() / weight.sum()), float(factor.mean())


def _spikes_to(calibrations: Sequence[Calibration], log_norm: float) -> float | None:
    """The threshold over the level: what any spike above it becomes."""
    if not any(len(c.spikes.indices) for c in calibrations):
        return None
    return float(np.exp(log_norm - np.mean([c.base for c in calibrations])))


def _stage_ratios(calibrations: Sequence[Calibration], log_norm: float) -> tuple[ClipRatio, ...]:
    """Share clipped in each third of the pilots, Wilson's interval on the independent steps."""
    parts = [np.array_split(c.log_norms[c.ramp_end :], len(STAGES)) for c in calibrations]
    found = []
    for i in range(len(STAGES)):
        above = np.concatenate([p[i] > log_norm for p in parts])
        n = len(above) / variance_inflation(float(np.mean([c.window.phi for c in calibrations])))
        found.append(wilson(float(above.mean()), n))
    return tuple(found)


def lift(pilots: Sequence[Pilot]) -> float:
    """How far the loudest part of the training lies above the level that thresholds belong to.

    Log; 0 within 25 %. A training that clips from its first step on goes through that part: there
    a threshold of another stage lies in the body, and is a hidden cut of the learning rate.
    """
    loudest = max(np.log(s.level) for s in staged(pilots, 0.0))
    base = np.mean([p.calibration.base for p in pilots if p.calibration is not None])
    above = float(loudest - base)
    return above if above > TOLERANCE else 0.0


def staged(pilots: Sequence[Pilot], log_norm: float) -> tuple[ClipStage, ...]:
    """What a fresh training of the pilots' recipe will show, in up to ten parts after the ramp.

    The interval spans those of the pilots, each Wilson's on its independent steps: seeds differ by
    more than their steps do. The steps are those of the shortest pilot.
    """
    shortest = min(pilots, key=_length)
    parts = max(1, min(MOST_PARTS, _length(shortest) // SMALLEST_PART))
    steps = np.array_split(shortest.checked.steps[-_length(shortest) :], parts)
    return tuple(_stage(pilots, log_norm, int(s[0]), int(s[-1])) for s in steps)


def _length(pilot: Pilot) -> int:
    """Valid steps after the ramp."""
    assert pilot.calibration is not None
    return len(pilot.checked.steps) - pilot.calibration.ramp_end


def _stage(pilots: Sequence[Pilot], log_norm: float, first: int, last: int) -> ClipStage:
    ratios, levels, rates = [], [], []
    for p in pilots:
        c, lr = p.calibration, p.checked.lr
        assert c is not None
        inside = (p.checked.steps >= first) & (p.checked.steps <= last)
        z = c.log_norms[inside]
        if len(z):
            independent = len(z) / variance_inflation(c.window.phi)
            ratios.append(wilson(float((z > log_norm).mean()), independent))
            levels.append(np.median(z))
        if lr is not None and np.isfinite(lr[inside]).all() and len(z):
            rates.append(np.median(lr[inside]))
    ratio = ClipRatio(
        min(r.low for r in ratios),
        float(np.mean([r.median for r in ratios])),
        max(r.high for r in ratios),
    )
    level = float(np.exp(np.mean(levels)))
    return ClipStage(first, last, ratio, level, float(np.median(rates)) if rates else None)


def wilson(share: float, n: float) -> ClipRatio:
    """90 % interval of a share of `n` independent steps (Wilson 1927)."""
    center = (share + Z90**2 / (2 * n)) / (1 + Z90**2 / n)
    half = Z90 / (1 + Z90**2 / n) * np.sqrt(share * (1 - share) / n + Z90**2 / (4 * n**2))
    # At 0 and 1 the ends are share itself, but for rounding.
    low, high = float(center - half), float(center + half)
    return ClipRatio(low if share > 0.0 else 0.0, share, high if share < 1.0 else 1.0)


def grid(c: Calibration) -> Floats:
    """Log thresholds from the lower body to beyond the largest norm: [GRID]."""
    z = c.log_norms[c.ramp_end :]
    return np.linspace(float(np.quantile(z, 0.3)), float(z.max()) + 0.1, GRID)


def evidence(pilot: Pilot, log_grid: Floats, simulated: Floats) -> ClipEvidence:
    """The arrays the plots are drawn from; `simulated` [replicates, grid]."""
    c, checked = pilot.calibration, pilot.checked
    assert c is not None
    w, z = c.window, np.sort(c.log_norms[c.ramp_end :])
    inside = np.sort(c.log_norms[w.first : w.last])
    bands = [forecast.interval(simulated[:, i], widen=widening(c)) for i in range(len(log_grid))]
    centers = np.round(w.block_centers).astype(np.int64)
    return ClipEvidence(
        steps=checked.steps,
        norms=np.exp(c.log_norms),
        lr=checked.lr,
        spikes=c.spikes.indices,
        window=(w.first, w.last),
        ramp_end=c.ramp_end,
        block_steps=checked.steps[centers],
        block_norms=np.exp(w.block_levels),
        trend=np.exp(c.level.trend[centers - w.first]),
        thresholds=np.exp(log_grid),
        pilot_ratio=1 - np.searchsorted(z, log_grid, side="right") / len(z),
        window_ratio=1 - np.searchsorted(inside, log_grid, side="right") / len(inside),
        forecast=(
            np.array([b.low for b in bands]),
            np.array([b.median for b in bands]),
            np.array([b.high for b in bands]),
        ),
    )
