"""The campaign file of the ablation that tests a clip proposal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from orchestrator.clip_nouns import Proposal
from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Campaign, Factor


def clip_plan(path: Path, campaign: Campaign, proposal: Proposal) -> Path:
    """Write `<name>-clip.yaml` beside the campaign file `path`, and return where it lies.

    It asks for one ablation whatever is found: every candidate, and none, against the present
    setting. The learning rate stays mapped for the control that planning adds where it is due.
    """
    factors = {f.name: f for f in campaign.factors}
    if "clip" not in factors:
        raise OrchestratorError(
            f"{path} maps no factor clip.", "add factors: {clip: <key of max_norm>} to it"
        )
    if not proposal.candidates:
        raise OrchestratorError(
            f"nothing to test: {proposal.reason}", "record a pilot that can be used"
        )
    clip = factors["clip"]
    tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    tree["name"] = f"{campaign.name}-clip"
    mapped: dict[str, Any] = {"clip": {"key": clip.key, "levels": _levels(clip, proposal)}}
    if "lr" in factors:
        mapped["lr"] = {"key": factors["lr"].key, "role": "nuisance"}
    tree |= {"factors": mapped, "ask": ["clip"]}
    target = path.with_name(f"{path.stem}-clip.yaml")
    head = f"# python -m orchestrator run conf={target.name}\n# Tests the max_norm proposed from "
    head += f"{', '.join(proposal.sources)}\n"
    _write(target, head + yaml.safe_dump(tree, sort_keys=False))
    return target


def _levels(clip: Factor, proposal: Proposal) -> list[float | None]:
    values: list[float | None] = [float(f"{c.from_start:.3g}") for c in proposal.candidates]
    if clip.baseline:
        values.append(None)
    return [v for v in values if v != clip.baseline]


def _write(target: Path, text: str) -> None:
    """Write what is not there yet; the same text again is no harm."""
    if target.exists() and target.read_text(encoding="utf-8") != text:
        raise OrchestratorError(
            f"--plan: {target} is there and says otherwise; it is never overwritten.",
            "rename or remove it",
        )
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OrchestratorError(
            f"--plan: {target} cannot be written: {error.strerror}.", "name a file elsewhere"
        ) from None
