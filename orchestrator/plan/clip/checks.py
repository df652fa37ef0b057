"""What is wrong with the record itself, in the order of docs/clip.md.

Each check returns a Flag or None; a `Refusal` says that no threshold can be proposed from this
record.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from orchestrator.clip_nouns import Flag, NormSeries
from orchestrator.nouns import Floats, Ints
from orchestrator.plan.clip import health, scaling

SMALLEST = 50
"""Valid steps below which nothing is said: p95 would rest on fewer than 3 exceedances."""

NONFINITE_SHARE = 0.05
LOG_STD_CONSTANT = 1e-6
SHARED_RELATIVE = 1e-4  # clip_grad_norm_ divides by norm + 1e-6: a clipped norm is this close
SHARED_SHARE, SHARED_STEPS = 0.01, 8
SHARED_EXCESS = 5.0
"""How often a value must be shared against its neighbours: norms in bf16, or rounded by a logger,
share all their values with others (at most 2-3 times the neighbours' count); a clip value stands
alone."""

LARGEST_FP32 = 1.8e19
"""Squares of larger norms overflow fp32 (3.4e38): a record at this level is not a training."""


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """The steps that may be used, and what was found on the way.

    `steps`, `log_norms` [n]; `loss`, `lr` [n] or None. `refusal` says why nothing can be proposed.
    """

    steps: Ints
    log_norms: Floats
    loss: Floats | None
    lr: Floats | None
    flags: tuple[Flag, ...]
    refusal: str | None = None
    notes: tuple[str, ...] = ()
    dropped: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Record:
    """A series on its way through the checks: `norms` [n] are NaN where they may not be used."""

    series: NormSeries
    norms: Floats
    dropped: dict[str, int]
    flags: list[Flag]
    notes: list[str] = field(default_factory=list)

    def raised(self, flag: Flag | None) -> str | None:
        """Keep a flag that refuses, and return why."""
        if flag is None:
            return None
        self.flags.append(flag)
        return flag.text

    def checked(self, refusal: str | None) -> Checked:
        """What is left of the series."""
        keep, series = np.isfinite(self.norms), self.series
        return Checked(
            steps=series.steps[keep],
            log_norms=np.log(self.norms[keep]),
            loss=None if series.loss is None else series.loss[keep],
            lr=None if series.lr is None else series.lr[keep],
            flags=tuple(self.flags),
            refusal=refusal,
            notes=tuple(self.notes),
            dropped={k: v for k, v in self.dropped.items() if v},
        )


def check(series: NormSeries) -> Checked:
    """Run the checks in order; the first refusal ends them."""
    record = _opened(series)
    return record.checked(_not_recorded(record) or _not_scaled(record) or _not_healthy(record))


def _opened(series: NormSeries) -> _Record:
    """The series without what is skipped, not finite or zero."""
    finite, zero = np.isfinite(series.norms), series.norms == 0
    skipped = np.zeros(len(series), bool) if series.skipped is None else series.skipped
    dropped = {
        "skipped": int(skipped.sum()),
        "nonfinite": int((~finite & ~skipped).sum()),
        "zero": int((zero & ~skipped).sum()),
    }
    norms = np.where(finite & ~zero & ~skipped, series.norms, np.nan)
    return _Record(series, norms, dropped, [*series.flags])


def _not_recorded(record: _Record) -> str | None:
    """Why these are no norms of unclipped gradients, one per step."""
    series, valid = record.series, record.norms[np.isfinite(record.norms)]
    record.raised(_sparse(series.steps))
    refusal = record.raised(_all_nonfinite(series)) or record.raised(_zero(series, record.dropped))
    if refusal is not None:
        return refusal
    record.raised(_nonfinite(series, record.dropped))
    return (
        record.raised(too_short(len(valid)))
        or record.raised(_constant(valid))
        or record.raised(_already_clipped(valid))
        or record.raised(_implausible(valid))
    )


def _not_scaled(record: _Record) -> str | None:
    """Undo a loss scale and keep one norm per optimizer step; why that cannot be done."""
    scaled = scaling.amp_scaled(record.series, np.isfinite(record.norms))
    if scaled is not None:
        record.flags.append(scaled.flag)
        if scaled.divide_by is None:
            return scaled.flag.text
        record.norms = record.norms / scaled.divide_by
    micro = scaling.micro_step(record.norms)
    if micro is None:
        return None
    record.flags.append(micro.flag)
    record.norms = np.where(micro.is_last, record.norms, np.nan)
    return record.raised(too_short(int(np.isfinite(record.norms).sum())))


def _not_healthy(record: _Record) -> str | None:
    """Why the pilot did not learn, as far as its loss can tell."""
    seen = record.checked(None)
    if seen.loss is None or not np.isfinite(seen.loss).any():
        record.notes.append(
            "No loss was recorded: whether the pilot learned anything was not checked."
        )
    return record.raised(health.unhealthy(seen.loss, seen.log_norms))


def too_short(valid: int) -> Flag | None:
    """Fewer valid steps than any quantile could rest on."""
    if valid >= SMALLEST:
        return None
    return Flag(
        "too_short",
        f"Only {valid} valid steps; at least {SMALLEST} are needed, and 600 for a 99th percentile. "
        "Record a longer pilot.",
    )


def _all_nonfinite(series: NormSeries) -> Flag | None:
    if np.isfinite(series.norms).any() or not len(series):
        return None
    return Flag(
        "all_nonfinite",
        f"All {len(series)} norms are NaN or inf. Fix the numerics first: look at the first step's "
        "loss, the precision (bf16 instead of fp16) and the loss scale.",
    )


def _nonfinite(series: NormSeries, dropped: dict[str, int]) -> Flag | None:
    """More than 5 % of the steps that were not skipped."""
    taken = len(series) - dropped["skipped"]
    if not taken or dropped["nonfinite"] <= NONFINITE_SHARE * taken:
        return None
    return Flag(
        "nonfinite",
        f"{dropped['nonfinite']} of {taken} norms ({dropped['nonfinite'] / taken:.0%}) are NaN or "
        "inf. Fix the numerics first: no threshold repairs a gradient that is not finite. What "
        "follows was computed on the other steps.",
    )


def _zero(series: NormSeries, dropped: dict[str, int]) -> Flag | None:
    """A norm of exactly zero is an error of the recorder, or of the graph."""
    taken = len(series) - dropped["skipped"]
    if not taken or dropped["zero"] <= NONFINITE_SHARE * taken:
        return None
    return Flag(
        "zero_norms",
        f"{dropped['zero']} of {taken} norms are exactly 0: recorded after zero_grad(), over no "
        "parameters, or the graph is cut. Record after backward() (and unscale_), before step().",
    )


def _constant(norms: Floats) -> Flag | None:
    spread = float(np.std(np.log(norms)))
    if spread >= LOG_STD_CONSTANT:
        return None
    return Flag(
        "constant",
        f"All norms are {np.median(norms):.6g} (spread of the log {spread:.1g}): the gradients are "
        "normalised, clipped at every step, or the recorder repeats one value.",
    )


def _already_clipped(norms: Floats) -> Flag | None:
    """One value shared to 1e-4 by at least 1 % and 8 steps, and far more often than others are."""
    width = np.log1p(SHARED_RELATIVE)
    z = np.sort(np.log(norms))
    counts = np.searchsorted(z, z + width, side="right") - np.arange(len(z))
    top = int(np.argmax(counts))
    count = int(counts[top])
    if count < max(SHARED_STEPS, SHARED_SHARE * len(z)):
        return None
    others = np.concatenate([counts[:top], counts[top + count :]])
    if len(others) and count < SHARED_EXCESS * np.quantile(others, 0.9):
        return None
    value = float(np.exp(np.median(z[top : top + count])))
    return Flag(
        "already_clipped",
        f"{count} of {len(z)} norms ({count / len(z):.0%}) equal {value:.6g}: this is the norm "
        f"*after* clipping at {value:.6g}. Record what clip_grad_norm_ returns (it is the norm "
        f"before "
        "clipping), or torch.nn.utils.get_total_norm before it, and run the pilot without "
        "clipping.",
    )


def _implausible(norms: Floats) -> Flag | None:
    middle = float(np.median(norms))
    if middle < LARGEST_FP32:
        return None
    return Flag(
        "implausible_level",
        f"The median norm is {middle:.3g}; its square overflows fp32. The training diverged, or a "
        "loss scale was not undone. No threshold follows from this record.",
    )


def _sparse(steps: Ints) -> Flag | None:
    """Only one in N steps was logged."""
    if len(steps) < 3:
        return None
    stride = int(np.median(np.diff(steps)))
    if stride < 2:
        return None
    return Flag(
        "sparse_log",
        f"Only one in {stride} steps was logged: about {1 - 1 / stride:.0%} of all spikes, and "
        f"whether "
        "they come in streaks, cannot be seen. Log every step (HF Trainer: logging_steps=1).",
    )
