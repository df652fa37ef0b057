"""The campaign file of the ablation that tests a clip proposal."""

from __future__ import annotations

from pathlib import Path

import yaml

from orchestrator.clip_nouns import CONTROL, Proposal
from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Campaign, Factor


def clip_plan(path: Path, campaign: Campaign, proposal: Proposal) -> Path:
    """Write `<name>-clip.yaml` beside the campaign file `path`, and return where it lies.

    Arms: every candidate and none, against the present setting, on paired seeds. With SGD and a
    candidate that removes over 10 % of the update also the present setting at its matched LR.
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
    tree["factors"] = {"max_norm": {"key": clip.key, "levels": _levels(clip, proposal)}}
    controls = _controls(factors.get("lr"), proposal) if not clip.baseline else []
    if controls:
        tree["factors"]["matched_lr"] = {"key": factors["lr"].key, "levels": controls}
    target = path.with_name(f"{path.stem}-clip.yaml")
    head = f"# python -m orchestrator run conf={target.name}\n# Tests the max_norm proposed from "
    head += f"{', '.join(proposal.sources)}\n"
    target.write_text(head + yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    return target


def _levels(clip: Factor, proposal: Proposal) -> list[float | None]:
    values: list[float | None] = [float(f"{c.max_norm:.3g}") for c in proposal.candidates]
    if clip.baseline:
        values.append(None)
    return [v for v in values if v != clip.baseline]


def _controls(lr: Factor | None, proposal: Proposal) -> list[float]:
    """The learning rates at which no clipping moves as far as each firm candidate does."""
    if lr is None or not isinstance(lr.baseline, float | int):
        return []
    if (proposal.optimizer or "").lower() not in ("sgd", "asgd"):
        return []
    firm = [c for c in proposal.candidates if c.update_removed > CONTROL]
    return [float(f"{lr.baseline * c.lr_factor:.3g}") for c in firm]
