"""The verb diagnose: what a log that somebody already has says."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import OrchestratorError

if TYPE_CHECKING:
    from orchestrator.cli.campaigns import Verbs
    from orchestrator.log_nouns import Diagnosis


def add_verb(verbs: Verbs) -> None:
    """Add the verb to the command line."""
    summary = "findings and hypotheses from a log somebody already has"
    sub = verbs.add_parser("diagnose", help=summary, description=summary)
    sub.add_argument("source", help="a log, a folder with one, a trial's folder, or mlflow:RUN_ID")
    sub.add_argument("--json", action="store_true", help="print one JSON object")
    sub.add_argument("--map", nargs="+", action="extend", default=[], type=_pair,
                     metavar="ROLE=COLUMN", help="train_loss=L val_loss=V")  # fmt: skip
    sub.add_argument("--run", metavar="NAME", help="which of several runs in one file")
    sub.add_argument("--every", type=int, metavar="N", help="read each n-th point only")
    sub.add_argument("--plan", type=Path, metavar="FILE", help="write a campaign that tests it")
    sub.add_argument("--html", type=Path, metavar="FILE", help="write a page with the curves")
    sub.set_defaults(verb=diagnose)


def _pair(text: str) -> tuple[str, str]:
    role, mark, column = text.partition("=")
    if not (role and mark and column):
        raise argparse.ArgumentTypeError(f"{text!r} is not ROLE=COLUMN")
    return role, column


# --- verbs ------------------------------------------------------------------------------------


def diagnose(arguments: argparse.Namespace) -> None:
    """`diagnose PATH|mlflow:RUN_ID`: what a log says, what to try, how it would be tested."""
    from orchestrator.diagnose import logs
    from orchestrator.telemetry.readers import NotACurve

    try:
        found = _diagnosis(arguments)
    except NotACurve as error:
        if arguments.json:
            print(json.dumps(logs.refused(error.problem), indent=1))
        raise
    if arguments.json:
        print(json.dumps(logs.as_json(found), indent=1, allow_nan=False))
    else:
        from orchestrator.report import show_diagnosis

        show_diagnosis(found)
    if arguments.html is not None:
        from orchestrator.report import write_diagnosis

        write_diagnosis(found, arguments.html)
    if arguments.plan is not None:
        _write_new(arguments.plan, logs.campaign_file(found))


# --- input ------------------------------------------------------------------------------------


def _diagnosis(arguments: argparse.Namespace) -> Diagnosis:
    """What the source that `arguments` name says, by the rules for its kind."""
    from orchestrator import telemetry
    from orchestrator.diagnose import logs
    from orchestrator.telemetry import readers

    source, mapping = arguments.source, dict(arguments.map)
    if source.startswith("mlflow:"):
        from orchestrator import track

        points, params = track.histories(source.removeprefix("mlflow:"))
        log = readers.from_histories(
            source, points, params=params, mapping=mapping, every=arguments.every
        )
        return logs.diagnose_log(log, source=source)
    path = Path(source)
    if telemetry.is_store(path):
        return logs.diagnose_own(telemetry.read(path), source=source)
    log = readers.read_log(path, mapping=mapping, run=arguments.run, every=arguments.every)
    return logs.diagnose_log(log, source=source)


def _write_new(path: Path, text: str) -> None:
    """Write a file that is not there yet."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        problem = f"--plan {path}: there is such a file, and it is never overwritten"
        raise OrchestratorError(problem, "name another file") from None
    except OSError as error:
        raise OrchestratorError(f"--plan {path}: {error.strerror}", "name another file") from None
