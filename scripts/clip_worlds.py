"""Synthetic gradient-norm series of known law, of twelve kinds, for bench_clip.py.

`world(kind, rng, law)` draws one series with its truth. Two laws of the body: `lognormal` (the
thresholds in orchestrator/plan/clip were chosen on it) and `gamma` (only ever reported on).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.clip_nouns import NormSeries

Floats = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """A series and the truth about it.

    `body(rng, n)` draws n log norms of the process as it is at the end (None: no quantile is asked
    for).
    """

    kind: str
    series: NormSeries
    flags: frozenset[str]
    is_refused: bool = False
    spikes: tuple[int, ...] = ()
    body: Draw | None = None


@dataclass(frozen=True, slots=True)
class _Body:
    """Law of one step's log norm around a level: [n] draws."""

    law: str
    spread: float

    def draw(self, rng: np.random.Generator, n: int) -> Floats:
        if self.law == "gamma":
            shape = 1.0 / self.spread**2
            return np.log(rng.gamma(shape, 1.0 / shape, n))
        return self.spread * rng.standard_normal(n)


def world(kind: str, rng: np.random.Generator, *, law: str = "lognormal") -> World:
    """One series of `kind`."""
    body = _Body(law, float(np.exp(rng.uniform(np.log(0.06), np.log(0.5)))))
    n = int(np.exp(rng.uniform(np.log(600), np.log(4000))))
    level = float(rng.uniform(-4, 4))
    return KINDS[kind](rng, n, level, body)


# --- loss and learning rate ------------------------------------------------------------------


def _loss(rng: np.random.Generator, n: int) -> Floats:
    """A loss that falls fast, then slowly, with the noise of batches."""
    start, floor = rng.uniform(1.5, 8.0), rng.uniform(0.05, 1.0)
    fall = np.exp(-np.arange(n) / (n * rng.uniform(0.05, 0.6)))
    return (floor + (start - floor) * fall) * np.exp(0.08 * rng.standard_normal(n))


def _lr(rng: np.random.Generator, n: int, warm: int = 0) -> Floats:
    """Constant or cosine, after a linear ramp of `warm` steps."""
    peak = 10 ** rng.uniform(-4, -1)
    t = np.arange(n)
    after = (t - warm) / max(1, n - warm)
    decay = 0.5 * (1 + np.cos(np.pi * after)) if rng.random() < 0.5 else np.ones(n)
    return np.where(t < warm, peak * (t + 1) / max(1, warm), peak * decay)


def _series(
    rng: np.random.Generator,
    log_norms: Floats,
    *,
    lr: Floats | None = None,
    loss_scale: Floats | None = None,
) -> NormSeries:
    n = len(log_norms)
    return NormSeries(
        steps=np.arange(n),
        norms=np.exp(log_norms),
        loss=_loss(rng, n),
        lr=_lr(rng, n) if lr is None else lr,
        loss_scale=loss_scale,
        source="synthetic",
    )


# --- the twelve kinds ------------------------------------------------------------------------


def stationary(rng: np.random.Generator, n: int, level: float, body: _Body) -> World:
    """Independent draws of one law."""
    z = level + body.draw(rng, n)
    return World(
        "stationary", _series(rng, z), frozenset(), body=lambda g, m: level + body.draw(g, m)
    )


def ar1(rng: np.random.Generator, n: int, level: float, body: _Body) -> World:
    """A stationary AR(1) in the log norm, phi from 0.5 to 0.95."""
    phi = rng.uniform(0.5, 0.95)

    def draw(g: np.random.Generator, m: int) -> Floats:
        noise = body.spread * np.sqrt(1 - phi**2) * g.standard_normal(m + 200)
        z = np.empty(m + 200)
        z[0] = body.spread * g.standard_normal()
        for t in range(1, m + 200):
            z[t] = phi * z[t - 1] + noise[t]
        return level + z[200:]

    return World("ar1", _series(rng, draw(rng, n)), frozenset({"autocorrelated"}), body=draw)


def warmup_spikes(rng: np.random.Generator, n: int, level: float, body: _Body) -> World:
    """An LR ramp during which the norm rises or falls, and isolated spikes later."""
    warm = int(n * rng.uniform(0.03, 0.12))
    z = level + body.draw(rng, n)
    size = rng.uniform(0.5, 1.8) * rng.choice([-1, 1])
    z[:warm] += size * np.linspace(1, 0, warm)
    count = int(rng.integers(3, max(4, int(0.012 * n)) + 1))
    first = int(2 * warm) + 10
    where = np.sort(rng.choice(np.arange(first, n - 5), count, replace=False))
    smallest = max(8 * body.spread, np.log(3.0))
    z[where] = level + smallest + rng.uniform(0, np.log(20), count)
    return World(
        "warmup_spikes",
        _series(rng, z, lr=_lr(rng, n, warm)),
        frozenset({"transient", "spikes"}),
        spikes=tuple(int(s) for s in where),
        body=lambda g, m: level + body.draw(g, m),
    )


def lr_step(rng: np.random.Generator, n: int, level: float, body: _Body) -> World:
    """The LR drops once or twice and the level of the norm moves with it."""
    lr, z = np.full(n, 10 ** rng.uniform(-4, -1)), level + body.draw(rng, n)
    last = 0.0
    for at in sorted(rng.uniform(0.2, 0.7, int(rng.integers(1, 3)))):
        lr[int(at * n) :] *= rng.choice([0.1, 0.2, 0.5])
        last += rng.uniform(0.3, 1.0) * rng.choice([-1, 1])
        z[int(at * n) :] = level + last + body.draw(rng, n - int(at * n))
    return World(
        "lr_step",
        _series(rng, z, lr=lr),
        frozenset({"regime_change"}),
        body=lambda g, m: level + last + body.draw(g, m),
    )


def bimodal(rng: np.random.Generator, n: int, level: float, body: _Body) -> World:
    """Two kinds of batches, at random or every k-th."""
    apart = max(6 * body.spread, np.log(2.5)) * rng.uniform(1.0, 1.5)
    share = rng.uniform(0.08, 0.5)
    period = int(1 / share) if rng.random() < 0.5 else 0

    def draw(g: np.random.Generator, m: int) -> Floats:
        high = np.arange(m) % period == 0 if period else g.random(m) < share
        return level + body.draw(g, m) + apart * high

    return World("bimodal", _series(rng, draw(rng, n)), frozenset({"bimodal"}), body=draw)


def pareto(rng: np.random.Generator, n: int, level: float, _: _Body) -> World:
    """Pareto norms: the log norm is exponential."""
    alpha = rng.uniform(1.3, 4.0)

    def draw(g: np.random.Generator, m: int) -> Floats:
        return level + g.exponential(1 / alpha, m)

    return World("pareto", _series(rng, draw(rng, n)), frozenset({"heavy_tail"}), body=draw)


def clipped(rng: np.random.Generator, n: int, level: float, body: _Body) -> World:
    """Somebody recorded the norm after clipping."""
    z = level + body.draw(rng, n)
    cap = np.exp(np.quantile(z, rng.uniform(0.2, 0.97)))
    norms = np.exp(z)
    norms = np.where(norms > cap, norms * cap / (norms + 1e-6), norms)
    return World(
        "clipped", _series(rng, np.log(norms)), frozenset({"already_clipped"}), is_refused=True
    )


def amp(rng: np.random.Generator, n: int, level: float, body: _Body) -> World:
    """Norms still multiplied by a loss scale that doubles, and halves after an overflow."""
    scale, grow = np.empty(n), int(n * rng.uniform(0.08, 0.3))
    now, since, limit = 2.0**15, 0, 2.0 ** rng.integers(15, 18)
    overflow = np.zeros(n, dtype=bool)
    for t in range(n):
        scale[t] = now
        overflow[t] = now > limit or rng.random() < 0.002
        since = 0 if overflow[t] else since + 1
        if overflow[t]:
            now /= 2
        elif since == grow:
            now, since = 2 * now, 0
    z = 0.5 * level + body.draw(rng, n)
    norms = np.where(overflow, np.inf, np.exp(z) * scale)
    # A scale that never moves on the steps with a norm proves nothing, and has to be asked about.
    has_column = rng.random() < 0.5
    is_known = has_column and len(set(scale[~overflow])) > 1
    with np.errstate(divide="ignore"):
        series = _series(rng, np.log(norms), loss_scale=scale if has_column else None)
    return World(
        "amp",
        series,
        frozenset({"amp_scaled"}),
        is_refused=not is_known,
        body=(lambda g, m: 0.5 * level + body.draw(g, m)) if is_known else None,
    )


def drift(rng: np.random.Generator, n: int, level: float, body: _Body) -> World:
    """The level moves by a factor of 2 to 6 over the run, at a constant rate in the log."""
    total = rng.uniform(np.log(2), np.log(6)) * rng.choice([-1, 1])
    z = level + total * (np.arange(n) / n - 1) + body.draw(rng, n)
    return World(
        "drift",
        _series(rng, z),
        frozenset({"drift"}),
        body=lambda g, m: level + body.draw(g, m),
    )


def constant(rng: np.random.Generator, n: int, level: float, body: _Body) -> World:
    """One value, up to rounding: normalised gradients, or a broken recorder."""
    z = np.full(n, level) + rng.choice([0.0, 1e-8]) * body.draw(rng, n)
    return World("constant", _series(rng, z), frozenset({"constant"}), is_refused=True)


def nonfinite(rng: np.random.Generator, n: int, level: float, body: _Body) -> World:
    """Between 7 % and 40 % of the norms are NaN or inf."""
    z = level + body.draw(rng, n)
    bad = rng.random(n) < rng.uniform(0.07, 0.4)
    z[bad] = rng.choice([np.nan, np.inf], int(bad.sum()))
    return World(
        "nonfinite",
        _series(rng, z),
        frozenset({"nonfinite"}),
        body=lambda g, m: level + body.draw(g, m),
    )


def short(rng: np.random.Generator, _: int, level: float, body: _Body) -> World:
    """Fewer than 50 steps."""
    z = level + body.draw(rng, int(rng.integers(5, 50)))
    return World("short", _series(rng, z), frozenset({"too_short"}), is_refused=True)


KINDS: dict[str, Callable[[np.random.Generator, int, float, _Body], World]] = {
    k.__name__: k
    for k in (
        stationary, ar1, warmup_spikes, lr_step, bimodal, pareto,
        clipped, amp, drift, constant, nonfinite, short,
    )
}  # fmt: skip
