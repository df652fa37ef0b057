"""A clip proposal in words: the answer, the table, the reasons, what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from orchestrator.clip_nouns import Candidate, Proposal
from orchestrator.nouns import ClipRatio
from orchestrator.report.blocks import Block, Bullets, Document, Heading, Table, Text
from orchestrator.report.console import console, show

ANSWERS = {
    "clip": "Clip the gradient norm.",
    "no_clipping_needed": "No clipping is needed.",
    "refused": "No threshold is proposed.",
}


def show_proposal(
    proposal: Proposal, pictures: Sequence[Path], *, asked: Sequence[str], planned: str | None
) -> None:
    """Print a proposal; `asked` are the words it was asked for with.

    `planned` is the campaign file that tests it, if it was written.
    """
    show(document(proposal, pictures, asked=asked, planned=planned), console())


def document(
    proposal: Proposal, pictures: Sequence[Path], *, asked: Sequence[str], planned: str | None
) -> Document:
    """The proposal as blocks."""
    p = proposal
    blocks: list[Block] = [
        Heading("Proposal for max_norm", 1),
        Text(f"{ANSWERS[p.recommendation]} {p.reason}", strong=True),
        Text(_used(p)),
    ]
    if p.candidates:
        blocks.append(_table(p))
    if p.flags:
        blocks.append(Heading("What was seen"))
        blocks.append(Bullets(tuple(f"`{f.name}`: {f.text}" for f in p.flags)))
    remarks = [f"{c.name}: {r}" for c in _shown(p) for r in c.remarks] + [*p.remarks]
    if remarks:
        blocks += [Heading("To bear in mind"), Bullets(tuple(remarks))]
    if p.backtest:
        blocks.append(_backtest(p))
    if pictures:
        blocks.append(Text("Plots: " + ", ".join(str(path) for path in pictures)))
    return (*blocks, Heading("Next"), Text(next_command(p, asked, planned)))


def next_command(p: Proposal, asked: Sequence[str], planned: str | None) -> str:
    """What to type now."""
    if planned is not None and p.recommendation != "refused":
        return (
            f"The ablation that tests it: `python -m orchestrator run conf={shlex.quote(planned)}`"
        )
    conf = next((t.removeprefix("conf=") for t in asked if t.startswith("conf=")), None)
    if p.recommendation == "refused":
        return "Mend what is named above, record a new pilot without clipping, and ask again."
    return (
        "A proposal is no proof. Write the ablation that tests it: `python -m orchestrator "
        f"propose-clip {shlex.join(asked)} --plan {shlex.quote(conf or 'exp.yaml')}`"
    )


def _used(p: Proposal) -> str:
    dropped = ", ".join(f"{n} {name}" for name, n in p.dropped.items())
    text = f"{p.n_used:,} of {p.n_steps:,} steps used"
    if p.window is not None:
        kind = "stable interval" if p.stable is not None else "no stable interval; the last steps"
        text += f" ({kind}: {p.window[0]} to {p.window[1]})"
    if dropped:
        text += f"; left out: {dropped}"
    if p.valid_until_step is not None:
        text += f". Valid until step {p.valid_until_step}"
    return text + (". Exploratory: the backtest failed." if p.is_exploratory else ".")


def _shown(p: Proposal) -> tuple[Candidate, ...]:
    return (*p.candidates, *((p.present,) if p.present else ()))


def _table(p: Proposal) -> Table:
    stages = [f"{s.name} {s.first}-{s.last}" for s in p.stages]
    is_lifted = any(c.from_start > 1.05 * c.max_norm for c in p.candidates)
    whole = ("from step 0",) if is_lifted else ()
    rows = tuple(
        (
            f"**{c.name}**" if c.name == p.default else c.name,
            f"{c.max_norm:.4g}",
            *(f"{c.from_start:.4g}" for _ in whole),
            f"{c.clip_ratio.median:.1%} ({_range(c.clip_ratio)})",
            *(f"{r.median:.1%}" for r in c.stage_ratios),
            f"{c.update_removed:.1%}",
        )
        for c in _shown(p)
    )
    spikes = next((c.spikes_to for c in p.candidates if c.spikes_to), None)
    return Table(
        ("candidate", "max_norm", *whole, "predicted ratio (90 %)", *stages, "update removed"),
        rows,
        f"Ratio: share of steps clipped, predicted for the next {p.horizon} steps; by stage of the "
        "pilot as it was."
        + (
            " From step 0: for a training that clips from its start, raised to its part with the "
            "largest norms."
            if is_lifted
            else ""
        )
        + (f" Spikes are cut to {spikes:.2g} times the level by the first." if spikes else ""),
    )


def _range(r: ClipRatio) -> str:
    return f"{r.low:.1%} to {r.high:.1%}"


def _backtest(p: Proposal) -> Table:
    rows = tuple(
        (
            str(r.origin),
            r.candidate,
            f"{r.max_norm:.4g}",
            f"{r.predicted.median:.1%} ({_range(r.predicted)})",
            f"{r.realised:.1%}",
            "yes" if r.is_covered else "no",
        )
        for r in p.backtest
    )
    held = sum(r.is_covered for r in p.backtest)
    return Table(
        ("proposed at step", "candidate", "max_norm", "predicted (90 %)", "realised", "held"),
        rows,
        f"Backtest inside the pilot: {held} of {len(rows)} predictions held.",
    )
