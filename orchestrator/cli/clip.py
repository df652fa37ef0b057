"""The verb propose-clip: on norms somebody already has, or on a campaign, whose pilot it runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.campaigns import read_campaign, read_record
from orchestrator.errors import OrchestratorError

if TYPE_CHECKING:
    from orchestrator.cli.campaigns import Verbs
    from orchestrator.clip_nouns import NormSeries, Proposal

BROKEN = "No pilot lived without clipping: the norms are those before each of them broke."
CLIPPED = (
    "No pilot lived without clipping: the norms are those before clipping of the baseline, which "
    "clips at {:g}."
)


def add_verb(verbs: Verbs) -> None:
    """Add the verb to the command line."""
    summary = "a max_norm from the gradient norms of an unclipped pilot"
    sub = verbs.add_parser("propose-clip", help=summary, description=summary)
    sub.add_argument(
        "tokens",
        nargs="+",
        metavar="PATH|TOKEN",
        help="CSV with step,loss,lr,grad_norm, trainer_state.json, a trial's or a campaign's "
        "folder, mlflow:RUN_ID (several: seeds of one recipe); or conf=exp.yaml [key=value ...], "
        "which runs the unclipped pilot",
    )
    sub.add_argument("--json", action="store_true", help="print one JSON object, write no plots")
    sub.add_argument("--optimizer", metavar="NAME", help="as in torch.optim: SGD, AdamW, ...")
    sub.add_argument("--parameters", type=int, metavar="N", help="number of trained parameters")
    sub.add_argument(
        "--layers", default="", metavar="GLOB", help="only these layers, if clipped by themselves"
    )
    sub.add_argument("--horizon", type=int, metavar="N", help="steps ahead to predict")
    sub.add_argument("--current", type=float, metavar="X", help="the max_norm in force today")
    sub.add_argument(
        "--plan", type=Path, metavar="EXP.YAML", help="write the ablation that tests it"
    )
    sub.set_defaults(verb=propose_clip)


def propose_clip(arguments: argparse.Namespace) -> None:
    """`propose-clip PATH|conf=exp.yaml`: which `max_norm` to try, why, and what tests it."""
    import numpy as np

    from orchestrator.plan.clip import as_json, propose

    asked = _asked(arguments.tokens, layers=arguments.layers, is_json=arguments.json)

    def proposed(pilots: Sequence[NormSeries]) -> Proposal:
        return propose(
            pilots,
            optimizer=arguments.optimizer,
            n_parameters=arguments.parameters,
            horizon=arguments.horizon,
            current=asked.current if arguments.current is None else arguments.current,
            rng=np.random.default_rng(0),
        )

    proposal = proposed(asked.pilots)
    broken = tuple(flag for flag in proposal.flags if flag.name == "unhealthy")
    if proposal.recommendation == "refused" and broken and asked.instead is not None:
        pilots, note = asked.instead()
        second = proposed(pilots)
        if second.recommendation != "refused":
            flags, remarks = (*broken, *second.flags), (note, *second.remarks)
            proposal = replace(second, flags=flags, remarks=remarks)
    planned = None
    if arguments.plan is not None and proposal.recommendation != "refused":
        from orchestrator.config.clip_plan import clip_plan

        campaign = read_campaign([f"conf={arguments.plan}"])
        planned = str(clip_plan(arguments.plan, campaign, proposal))
    if arguments.json:
        print(json.dumps(as_json(proposal), indent=1, allow_nan=False))
        return
    from orchestrator.report.clip_figures import write_plots
    from orchestrator.report.clip_text import show_proposal

    pictures = write_plots(proposal, asked.plots)
    show_proposal(proposal, pictures, asked=arguments.tokens, planned=planned)


# --- input ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the command line names: pilots, where their plots go, and the threshold in force.

    `instead` gives the norms to take if none of the pilots lived, and what is to be said of that.
    """

    pilots: Sequence[NormSeries]
    plots: Path
    current: float | None = None
    instead: Callable[[], tuple[Sequence[NormSeries], str]] | None = None


def _asked(tokens: Sequence[str], *, layers: str, is_json: bool) -> _Asked:
    if any(token.startswith("conf=") for token in tokens):
        return _of_campaign(tokens, layers, is_json=is_json)
    found = [_of_source(token, layers) for token in tokens]
    pilots = [series for asked in found for series in asked.pilots]
    return _Asked(pilots, found[0].plots)


def _of_campaign(tokens: Sequence[str], layers: str, *, is_json: bool) -> _Asked:
    """The campaign's pilot, which is run as far as the ledger does not know it."""
    campaign = read_campaign(tokens)
    from orchestrator import campaign as campaigns
    from orchestrator.plan.clip import read_norms, until_it_broke
    from orchestrator.report import Display

    present = next((f.baseline for f in campaign.factors if f.name == "clip"), None)
    in_force = float(present) if isinstance(present, int | float) and present > 0 else None

    def recorded(*, is_clipped: bool) -> list[NormSeries]:
        with Display(sys.stderr if is_json else None) as display:
            folders = campaigns.pilot(campaign, display, is_clipped=is_clipped)
        return [series for folder in folders for series in read_norms(folder, layers=layers)]

    pilots = recorded(is_clipped=False)

    def instead() -> tuple[list[NormSeries], str]:
        if in_force is None:
            return [until_it_broke(p) for p in pilots], BROKEN
        return recorded(is_clipped=True), CLIPPED.format(in_force)

    place = Path(campaign.folder) / "clip"
    return _Asked(pilots, place, None if layers else in_force, instead)


def _of_source(source: str, layers: str) -> _Asked:
    """Norms that are there: of a file, a trial, an MLflow run, or a campaign's last baseline."""
    from orchestrator.ledger import FILE
    from orchestrator.plan.clip import from_telemetry, read_norms

    if source.startswith("mlflow:"):
        from orchestrator import track
        from orchestrator.telemetry import readers

        points, params = track.histories(source.removeprefix("mlflow:"))
        log = readers.from_histories(source, points, params=params)
        return _Asked(
            [from_telemetry(log.telemetry, source=source, layers=layers)],
            Path(f"{source.replace(':', '-')}-clip"),
        )
    path = Path(source)
    if not (path / FILE).is_file():
        return _Asked(read_norms(path, layers=layers), _beside(path))
    record, _ = read_record([source])
    trials = [
        trial
        for turn in record.rounds[-1:]
        for trial, outcome in record.of(turn.baseline, turn.seeds)
        if outcome.status.is_result
    ]
    if not trials:
        raise OrchestratorError(f"{path}: no trial of the baseline has ended.", "run it first")
    pilots = [s for t in trials for s in read_norms(Path(t.folder), layers=layers)]
    return _Asked(pilots, path / "clip")


def _beside(path: Path) -> Path:
    """Where the plots of a record go."""
    return path / "clip" if path.is_dir() else path.with_name(f"{path.stem}-clip")
