"""One level of a factor as an arm: its overrides and its name."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.nouns import Arm, Factor, Scalar


def at_present(factor: Factor, baseline: Arm) -> Factor:
    """The factor at the baseline's present level: what was adopted, else the original's."""
    return replace(factor, baseline=dict(baseline.overrides).get(factor.key, factor.baseline))


def arm_at(factor: Factor, value: Scalar, baseline: Arm) -> Arm:
    """The arm that sets `factor` to `value`, and carries what the baseline has adopted."""
    overrides = dict(baseline.overrides) | {factor.key: value}
    return Arm(f"{factor.name}={spelled(value)}", tuple(sorted(overrides.items())))


def unclipped(clip: Factor) -> Arm:
    """The original baseline with clipping off."""
    off = off_value(clip)
    return Arm("baseline") if off == clip.baseline else arm_at(clip, off, Arm("baseline"))


def off_value(clip: Factor) -> Scalar:
    """The user's own word for no clipping (0, say), else null."""
    return next((v for v in (clip.baseline, *clip.levels) if not v), None)


def spelled(value: Scalar) -> str:
    """A level as it stands in an arm's name."""
    if value is None:
        return "none"
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)
