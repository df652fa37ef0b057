"""Clip proposals on synthetic series of known law and on recorded trainings."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from clip_worlds import KINDS, World, world
from intervals import wilson

from orchestrator.clip_nouns import NormSeries, Proposal
from orchestrator.plan.clip import propose, read_norms

T = TypeVar("T")
BAND = 0.99  # of the Monte-Carlo band of a sample quantile
DRAWS = 400
ORIGINS = (0.5, 0.6, 0.7, 0.8)  # shares of a recorded series from which the rest is predicted


@dataclass
class Tally:
    """Successes of trials, and the failures in words."""

    name: str
    goal: float
    hits: int = 0
    seen: int = 0
    misses: list[str] = field(default_factory=list)

    def add(self, is_hit: bool, what: str) -> None:
        self.seen += 1
        self.hits += is_hit
        if not is_hit:
            self.misses.append(what)

    def __str__(self) -> str:
        if not self.seen:
            return f"{self.name:<44} nothing to count"
        low, high = wilson(self.hits, self.seen)
        share = self.hits / self.seen
        verdict = "reached" if share >= self.goal else "MISSED"
        return (
            f"{self.name:<44} {self.hits:>5}/{self.seen:<5} {share:6.1%} [{low:.1%}, {high:.1%}]"
            f"  goal {self.goal:.0%}: {verdict}"
        )


def progress(items: Iterable[T], count: int, label: str) -> Iterator[T]:
    """Pass items on and tell on standard error how far it is."""
    started = time.monotonic()
    for done, item in enumerate(items, 1):
        yield item
        spent = time.monotonic() - started
        left = spent / done * (count - done)
        print(f"\r{label}: {done}/{count}, {left:3.0f} s left ", end="", file=sys.stderr)
    print(file=sys.stderr)


def proposed(series: NormSeries, seed: int, **settings: object) -> Proposal:
    asked = {"optimizer": None, "n_parameters": None, "horizon": None, "current": None, **settings}
    return propose(series, rng=np.random.default_rng(seed), **asked)  # type: ignore[arg-type]


# --- synthetic --------------------------------------------------------------------------------


def synthetic(seed: int, repeats: int, law: str) -> list[Tally]:
    """`repeats` fresh series of each kind: flags, quantiles, spikes, refusals."""
    flags = Tally("series with exactly the flags they deserve", 1.0)
    quantiles = Tally("quantile candidates in the 99 % band", 0.98)
    found = Tally("planted spikes found", 1.0)
    false = Tally("series without a false spike", 1.0)
    refused = Tally("proposals made where due, and only there", 1.0)
    jobs = [(kind, i) for kind in KINDS for i in range(repeats)]
    for kind, i in progress(jobs, len(jobs), f"synthetic, {law}"):
        rng = np.random.default_rng([seed, i, list(KINDS).index(kind)])
        w = world(kind, rng, law=law)
        p = proposed(w.series, i)
        label = f"{kind} {i}"
        names = {f.name for f in p.flags}
        flags.add(names == w.flags, f"{label}: {sorted(names)} for {sorted(w.flags)}")
        refused.add((p.recommendation == "refused") == w.is_refused, f"{label}: {p.reason}")
        for s in w.spikes:
            found.add(s in p.spikes, f"{label}: step {s}")
        wrong = sorted(set(p.spikes) - set(w.spikes))
        false.add(not wrong, f"{label}: {wrong}")
        for name, is_inside, what in banded(w, p, rng):
            quantiles.add(is_inside, f"{label}, {name}: {what}")
    return [flags, refused, quantiles, found, false]


def banded(w: World, p: Proposal, rng: np.random.Generator) -> Iterator[tuple[str, bool, str]]:
    """Whether each quantile candidate lies where sample quantiles of so many true steps lie."""
    wanted = [c for c in p.candidates if c.quantile is not None]
    if w.body is None or not wanted:
        return
    samples = np.stack([w.body(rng, p.n_used) for _ in range(DRAWS)])  # [draws, n]
    floor = np.maximum(np.median(samples, axis=1) + np.log(1.25), np.quantile(samples, 0.9, axis=1))
    for c in wanted:
        drawn = np.maximum(np.quantile(samples, c.quantile, axis=1), floor)
        low, high = np.quantile(drawn, [(1 - BAND) / 2, (1 + BAND) / 2])
        z = np.log(c.max_norm)
        yield c.name, bool(low <= z <= high), f"{z:.3f} outside [{low:.3f}, {high:.3f}]"


# --- recorded ---------------------------------------------------------------------------------


def recorded(folder: Path) -> list[Tally]:
    """Predict the rest of each recorded training from its first part, and count what came."""
    facts = json.loads((folder / "manifest.json").read_text())
    covered = Tally("recorded: 90 % intervals that hold the truth", 0.88)
    spikes = Tally("recorded: bad batches that stand out, found", 1.0)
    invented = Tally("recorded: healthy trainings without a spike", 1.0)
    healthy = Tally("recorded: refused if and only if it is dead", 1.0)
    for name in progress(facts, len(facts), "recorded"):
        (series,) = read_norms(folder / f"{name}.csv")
        optimizer = facts[name]["opt"]
        p = proposed(series, 0, optimizer=optimizer)
        dead = facts[name]["val_metric"] < DEAD
        healthy.add((p.recommendation == "refused") == dead, f"{name}: {p.reason}")
        if p.recommendation != "refused":
            for s in standing_out(series, facts[name].get("bad_steps", []), p):
                spikes.add(s in p.spikes, f"{name}: step {s}")
            if facts[name]["cond"] == "healthy":
                invented.add(not p.spikes, f"{name}: {p.spikes}")
        for origin in ORIGINS:
            for ok, what in ahead(series, origin, optimizer):
                covered.add(ok, f"{name} at {origin:.0%}: {what}")
    return [healthy, spikes, invented, covered]


def standing_out(series: NormSeries, bad: Sequence[int], p: Proposal) -> Iterator[int]:
    """Bad batches after the ramp whose norm tops all others within 25 steps, and 1.5 medians.

    A batch the network is sure of has next to no gradient, however bad it is: no norm shows it.
    """
    is_bad = np.isin(series.steps, bad)
    for step in bad:
        near = np.abs(series.steps - step) <= 25
        others = series.norms[near & ~is_bad & np.isfinite(series.norms)]
        (norm,) = series.norms[series.steps == step]
        is_seen = np.isfinite(norm) and norm > max(others.max(), 1.5 * np.median(others))
        if step > p.evidence.steps[p.evidence.ramp_end] and is_seen:
            yield step


DEAD = 0.2
"""Accuracy of a network that never left chance: ten classes, or fewer."""


def ahead(series: NormSeries, share: float, optimizer: str) -> Iterator[tuple[bool, str]]:
    """Whether the realised clip ratio after `share` of the series lies in each interval."""
    cut = int(share * len(series))
    p = proposed(head(series, cut), 0, optimizer=optimizer)
    if p.recommendation == "refused":
        return
    future = series.norms[cut : cut + p.horizon]
    if len(future) < p.horizon:
        return
    for c in p.candidates:
        realised = float(np.mean(future > c.max_norm))
        r = c.clip_ratio
        ok = r.low <= realised <= r.high
        yield ok, f"{c.name} {realised:.3f} outside [{r.low:.3f}, {r.high:.3f}]"


def head(series: NormSeries, n: int) -> NormSeries:
    """The first `n` rows."""

    def cut(x):  # type: ignore[no-untyped-def]
        return None if x is None else x[:n]

    return NormSeries(
        steps=series.steps[:n], norms=series.norms[:n], loss=cut(series.loss), lr=cut(series.lr),
        loss_scale=cut(series.loss_scale), skipped=cut(series.skipped),
    )  # fmt: skip


# --- speed ------------------------------------------------------------------------------------


def speed(seed: int, n: int) -> str:
    """Seconds on the clock, and of the processor, for one proposal from `n` steps with spikes."""
    rng = np.random.default_rng(seed)
    norms = np.exp(0.3 * rng.standard_normal(n))
    norms[rng.choice(n, n // 1000, replace=False)] *= 50
    loss = 3 * np.exp(-np.arange(n) / n) + 0.1 * rng.standard_normal(n)
    series = NormSeries(np.arange(n), norms, loss=loss, lr=np.full(n, 1e-3))
    started, cpu = time.monotonic(), time.process_time()
    proposed(series, seed)
    seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    verdict = "reached" if seconds < 5 else "MISSED"
    return f"{n:,} steps: {seconds:.2f} s, {cpu:.2f} s of processor time  goal 5 s: {verdict}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recorded", type=Path, help="folder of recorded series and manifest.json")
    parser.add_argument("--seed", type=int, default=1, help="of the synthetic series")
    parser.add_argument("--repeats", type=int, default=12, help="series per kind")
    parser.add_argument("--law", choices=("lognormal", "gamma"), default="lognormal")
    parser.add_argument("--steps", type=int, default=1_000_000, help="of the speed test; 0: none")
    parser.add_argument("--misses", action="store_true", help="list every miss")
    arguments = parser.parse_args()
    tallies = synthetic(arguments.seed, arguments.repeats, arguments.law)
    if arguments.recorded:
        tallies += recorded(arguments.recorded)
    for tally in tallies:
        print(tally)
        if arguments.misses:
            print(*(f"    {m}" for m in tally.misses), sep="\n")
    if arguments.steps:
        print(speed(arguments.seed, arguments.steps))


if __name__ == "__main__":
    main()
