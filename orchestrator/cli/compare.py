"""The verb compare: the statistics on a table or on MLflow runs that somebody already has."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import OrchestratorError

if TYPE_CHECKING:
    from orchestrator.cli.campaigns import Verbs
    from orchestrator.report import Say
    from orchestrator.score_nouns import ScoreTable

MLFLOW = "mlflow:"

EPILOG = """\
A table has a row a run (columns arm, seed, value and, if need be, status: done, diverged or
missing), or a column `seed` and one for each arm, or a column `arm` and one for each seed:
CSV, TSV, JSON, JSON Lines, Parquet, Feather or Excel.

  compare scores.csv --baseline base --direction max --delta 0.005
  compare sweep.parquet --arm model --metric acc --baseline base --direction max --plot forest.png
  compare mlflow:sweep --arm params.lr --metric val/loss --baseline 0.1 --direction min --markdown
  compare mlflow:digits-overfitting        a campaign of our own needs no names
"""


def add_verb(verbs: Verbs) -> None:
    """Add the verb to the command line."""
    summary = "the statistics on results somebody already has"
    sub = verbs.add_parser(
        "compare",
        help=summary,
        description=summary,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub.add_argument(
        "source", nargs="?", help="a table, - for standard input, or mlflow:EXPERIMENT (name or id)"
    )
    sub.add_argument("--baseline", action=_Once, metavar="NAME", help="the arm to compare with")
    sub.add_argument("--direction", action=_Once, metavar="max|min", help="which way is good")
    sub.add_argument("--alpha", type=float, default=0.05, help="one-sided, family-wise (0.05)")
    sub.add_argument("--delta", type=float, help="smallest difference worth acting on")
    sub.add_argument("--resolution", type=float, default=0.0, help="step of the metric, 1/N say")
    sub.add_argument("--looks", type=_looks, default=(), metavar="3,5,7,10",
                     help="numbers of seeds at which one has planned to look")  # fmt: skip
    _add_names(sub)
    _add_output(sub)
    sub.set_defaults(verb=compare)


def _add_names(sub: argparse.ArgumentParser) -> None:
    names = sub.add_argument_group("names", "of columns; in MLflow, of tags or parameters")
    names.add_argument("--arm", default="arm", metavar="NAME")
    names.add_argument("--seed", default="seed", metavar="NAME")
    names.add_argument("--metric", metavar="NAME", help="the column or metric of the values")
    names.add_argument("--status", default="status", metavar="NAME")
    mlflow = sub.add_argument_group("MLflow")
    mlflow.add_argument("--mlflow", metavar="EXPERIMENT", help="the same as mlflow:EXPERIMENT")
    mlflow.add_argument("--arm-tag", dest="arm", type="tags.{}".format, metavar="KEY",
                        help="the same as --arm tags.KEY")  # fmt: skip
    mlflow.add_argument("--arm-param", dest="arm", type="params.{}".format, metavar="KEY",
                        help="the same as --arm params.KEY")  # fmt: skip
    mlflow.add_argument("--seed-param", dest="seed", type="params.{}".format, metavar="KEY",
                        help="the same as --seed params.KEY")  # fmt: skip
    mlflow.add_argument("--filter", default="", metavar="QUERY", help="params.lr = '0.1', say")
    mlflow.add_argument("--tracking-uri", metavar="URI", help="else MLFLOW_TRACKING_URI")


def _add_output(sub: argparse.ArgumentParser) -> None:
    output = sub.add_argument_group("output", "a table with the reasons of the verdicts, or")
    form = output.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--markdown", action="store_true", help="Markdown")
    form.add_argument("--latex", action="store_true", help="a LaTeX table (booktabs)")
    output.add_argument("--plot", type=Path, metavar="FILE", help="also a forest.png, .svg or .pdf")


class _Once(argparse.Action):
    """An option that would silently lose its first value if it were given twice."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option_string} is given twice")
        setattr(namespace, self.dest, values)


def _looks(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(","))


def compare(arguments: argparse.Namespace) -> None:
    """`compare TABLE|mlflow:EXPERIMENT --baseline NAME --direction max`: verdicts on results."""
    from orchestrator import library, report

    if arguments.plot is not None:
        library.plot_form(arguments.plot)
    with report.waiting(f"reading {_source(arguments)}") as say:
        table = _table(arguments, say)
        say("comparing")
        found = library.compare(
            table,
            baseline=arguments.baseline,
            direction=arguments.direction,
            alpha=arguments.alpha,
            delta=arguments.delta,
            resolution=arguments.resolution,
            looks=arguments.looks,
        )
    if arguments.plot is not None:
        found.forest(arguments.plot)
    if arguments.json:
        print(json.dumps(found.as_json(), indent=1, allow_nan=False))
    elif arguments.markdown:
        print(found.markdown(), end="")
    elif arguments.latex:
        print(found.latex())
    else:
        report.show_comparison(found.comparisons, found.verdicts, found.ranking, found.notes)
    if arguments.json or arguments.latex:
        for note in found.notes:
            print(f"note: {note}", file=sys.stderr)


def _source(arguments: argparse.Namespace) -> str:
    source, experiment = arguments.source, arguments.mlflow
    if (source is None) == (experiment is None):
        raise OrchestratorError(
            "compare needs one table or one experiment",
            "give a file, - for standard input, or mlflow:EXPERIMENT",
        )
    return str(source) if experiment is None else f"{MLFLOW}{experiment}"


def _table(arguments: argparse.Namespace, say: Say) -> ScoreTable:
    from orchestrator import comparison, track
    from orchestrator.score_nouns import Columns

    source = _source(arguments)
    if source.startswith(MLFLOW):
        return track.scores(
            source.removeprefix(MLFLOW),
            metric=arguments.metric,
            columns=Columns(arm=arguments.arm, seed=arguments.seed, status=arguments.status),
            baseline=arguments.baseline,
            where=arguments.filter,
            uri=arguments.tracking_uri,
            progress=lambda n: say(f"reading {source}: {n} runs"),
        )
    if arguments.filter or arguments.tracking_uri:
        raise OrchestratorError(
            f"--filter and --tracking-uri are for MLflow; {source} is a table",
            f"give {MLFLOW}EXPERIMENT, or leave them out",
        )
    value = arguments.metric or "value"
    columns = Columns(arguments.arm, arguments.seed, value, arguments.status)
    if source == "-":
        return comparison.table_in(sys.stdin.buffer.read(), "standard input", columns)
    return comparison.read_table(Path(source), columns)
