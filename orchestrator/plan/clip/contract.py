"""The contract of `propose-clip --json`."""

from __future__ import annotations

from orchestrator.clip_nouns import Candidate, Proposal


def as_json(proposal: Proposal) -> dict[str, object]:
    """The contract of `propose-clip --json`: these keys, no others (docs/clip.md)."""
    return {
        "flags": [f.name for f in proposal.flags],
        "n_steps": proposal.n_steps,
        "n_used": proposal.n_used,
        "stable": None if proposal.stable is None else list(proposal.stable),
        "spikes": list(proposal.spikes),
        "drift_per_1000_steps": proposal.drift_per_1000_steps,
        "recommendation": proposal.recommendation,
        "reason": proposal.reason,
        "default": proposal.default,
        "valid_until_step": proposal.valid_until_step,
        "candidates": [_candidate_json(c) for c in proposal.candidates],
    }


def _candidate_json(c: Candidate) -> dict[str, object]:
    return {
        "name": c.name,
        "max_norm": c.max_norm,
        "quantile": c.quantile,
        "clip_ratio": {
            "low": c.clip_ratio.low,
            "median": c.clip_ratio.median,
            "high": c.clip_ratio.high,
        },
        "update_removed": c.update_removed,
    }
