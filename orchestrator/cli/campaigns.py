"""The verbs on a campaign: run, plan, status, report, explain."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.nouns import Campaign, Record, Training

    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]

EPILOG = """
tokens:
  conf=PATH                 the campaign file, anywhere on disk
  key=value                 override any key of it:  budget.trials=90  train.config.epochs=3
  budget=smoke              choose a config group:   budget=standard|smoke  protocol=standard|quick
  hydra/launcher=NAME       where trials run:        isolated (default), basic, joblib, ...
  hydra.launcher.KEY=VALUE  that launcher's own settings

exit codes: 0 done, 1 a fault of ours, 2 your input is wrong,
            130 interrupted (the same command resumes)
"""


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    for name, verb, summary in (
        ("run", run, "the whole loop; the same command again resumes it"),
        ("plan", plan, "what would be launched, each arm's diff, trials, cost; launches nothing"),
        ("status", status, "where a campaign stands"),
        ("report", report, "write the report again, and feed MLflow"),
        ("explain", explain, "why a verdict is what it is: explain conf=... NAME"),
    ):
        sub = verbs.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.add_argument("tokens", nargs="+", metavar="TOKEN", help="conf=exp.yaml [key=value ...]")
        sub.set_defaults(verb=verb)


def run(arguments: argparse.Namespace) -> None:
    """`run conf=exp.yaml`: the whole loop."""
    campaign = read_campaign(arguments.tokens)
    from orchestrator import campaign as campaigns
    from orchestrator.report import Display

    with Display() as display:
        campaigns.run(campaign, display)


def plan(arguments: argparse.Namespace) -> None:
    """`plan conf=exp.yaml`: what would be launched."""
    campaign = read_campaign(arguments.tokens)
    from orchestrator import campaign as campaigns
    from orchestrator.report import Display

    with Display() as display:
        campaigns.preview(campaign, display)


def status(arguments: argparse.Namespace) -> None:
    """`status conf=exp.yaml` or `status FOLDER`: where a campaign stands."""
    from orchestrator.report import show_status

    record, _ = read_record(arguments.tokens)
    show_status(record)


def report(arguments: argparse.Namespace) -> None:
    """`report conf=exp.yaml` or `report FOLDER`: report and MLflow, made again from the record."""
    from orchestrator import campaign as campaigns
    from orchestrator.report import Display

    record, _ = read_record(arguments.tokens)
    with Display() as display:
        campaigns.publish(record, display)


def explain(arguments: argparse.Namespace) -> None:
    """`explain conf=exp.yaml NAME`: a verdict in plain words, every number named."""
    from orchestrator.report import show_explanation

    record, names = read_record(arguments.tokens)
    show_explanation(record, " ".join(names))


# --- input ------------------------------------------------------------------------------------


def read_campaign(tokens: Sequence[str]) -> Campaign:
    """The campaign that `tokens` describe."""
    from orchestrator import config

    return config.read(config.parse_tokens(tokens), complete=_complete)


def _complete(training: Training) -> Training:
    """What only the launcher can know of a program: a script's own config, and its sources."""
    from orchestrator import launch

    return dataclasses.replace(
        training,
        config=launch.baseline_config(training),
        code=launch.fingerprint(training),
    )


def read_record(tokens: Sequence[str]) -> tuple[Record, list[str]]:
    """The record that `tokens` name, by conf= or by folder, and the tokens left over."""
    from orchestrator.record import load

    if not tokens[0].startswith("conf="):
        return load(Path(tokens[0])), list(tokens[1:])
    from orchestrator import config

    ours = [t for t in tokens if t.startswith(("conf=", "folder=", "runs=", "name=", "tracking_"))]
    names = [t for t in tokens if t not in ours]
    folder, uri = config.whereabouts(config.parse_tokens(ours))
    record = load(folder)
    # Where it is shown may be chosen anew at any time.
    campaign = dataclasses.replace(record.campaign, tracking_uri=uri)
    return dataclasses.replace(record, campaign=campaign), names
