"""The command line. Nothing heavy is imported before a verb runs, so that `--help` is instant.

`campaigns` holds the verbs on a campaign; `compare`, `diagnose` and `clip` one verb each, on what
somebody already has.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence

from orchestrator.cli import campaigns, clip, compare, diagnose
from orchestrator.errors import OrchestratorError

DONE, OURS, USER, INTERRUPTED = 0, 1, 2, 130  # exit codes


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code; user errors are told without a traceback."""
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        verb: Callable[[argparse.Namespace], None] = arguments.verb
        verb(arguments)
    except OrchestratorError as error:
        print(error, file=sys.stderr)
        return USER
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away, as `| head` does
    return DONE


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m orchestrator",
        description="Controlled-experiment tuning for PyTorch training.",
        epilog=campaigns.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    campaigns.add_verbs(verbs)
    compare.add_verb(verbs)
    diagnose.add_verb(verbs)
    clip.add_verb(verbs)
    return parser
