"""The verbs on what somebody already has: compare, diagnose."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import OrchestratorError

if TYPE_CHECKING:
    from orchestrator.cli.campaigns import Verbs
    from orchestrator.log_nouns import Diagnosis


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    _add_compare(verbs)
    _add_diagnose(verbs)


def _add_compare(verbs: Verbs) -> None:
    summary = "the statistics on results somebody already has"
    sub = verbs.add_parser("compare", help=summary, description=summary)
    sub.add_argument("file", type=Path, help="CSV with columns arm,seed,value[,status]")
    sub.add_argument("--baseline", required=True, metavar="NAME", help="the arm to compare with")
    sub.add_argument("--direction", required=True, choices=("max", "min"), help="which way is good")
    sub.add_argument("--alpha", type=float, default=0.05, help="one-sided, family-wise")
    sub.add_argument("--delta", type=float, help="smallest difference worth acting on")
    sub.add_argument("--resolution", type=float, default=0.0, help="step of the metric, 1/N say")
    sub.add_argument("--looks", type=_looks, default=(), help="planned numbers of seeds: 3,5,7,10")
    sub.add_argument("--json", action="store_true", help="print one JSON object")
    sub.set_defaults(verb=compare)


def _add_diagnose(verbs: Verbs) -> None:
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


def _looks(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(","))


# --- verbs ------------------------------------------------------------------------------------


def compare(arguments: argparse.Namespace) -> None:
    """`compare FILE.csv --baseline NAME --direction max`: verdicts on results already there."""
    from orchestrator import decide
    from orchestrator.comparison import as_json, compare_file
    from orchestrator.nouns import Direction

    compared = compare_file(
        arguments.file,
        baseline=arguments.baseline,
        direction=Direction(arguments.direction),
        alpha=arguments.alpha,
        delta=arguments.delta,
        resolution=arguments.resolution,
        looks=arguments.looks,
    )
    verdicts = decide.judge(compared)
    ranking = decide.ranking(compared, verdicts)
    if arguments.json:
        print(json.dumps(as_json(compared, verdicts, ranking), indent=1, allow_nan=False))
        return
    from orchestrator.report import show_comparison

    show_comparison(compared, verdicts, ranking)


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
