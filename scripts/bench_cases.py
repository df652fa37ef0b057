"""Read and diagnose labelled foreign logs in place, and compare with what their labels say.

    python scripts/bench_cases.py CASES

CASES holds a folder per case: the log, and a `case.yaml` (id, format, label, also_acceptable,
confidence, must_not_say, n_points, series). Right is a primary label that is `label` or
acceptable. What must not be said is looked for among the labels, and as a word anywhere in the
answer; "... as (the) main finding" among primary labels only. Shares with 95 % Wilson intervals,
of all cases and of two random halves.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from intervals import wilson

from orchestrator.diagnose.logs import as_json, diagnose_log, refused
from orchestrator.errors import OrchestratorError
from orchestrator.log_nouns import LABELS
from orchestrator.telemetry import readers


def main() -> None:
    """Print one line per case, and what did not agree under it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", type=Path)
    parser.add_argument("only", nargs="*", help="ids of cases; all if none is given")
    parser.add_argument("--verbose", action="store_true", help="show columns, facts and warnings")
    arguments = parser.parse_args()
    counts = {"cases": 0, "crashes": 0, "format": 0, "points": 0, "series": 0, "refused": 0}
    slowest, scores = 0.0, []
    for file in sorted(arguments.cases.glob("*/case.yaml")):
        case = yaml.safe_load(file.read_text(encoding="utf-8"))
        if arguments.only and case["id"] not in arguments.only:
            continue
        began = time.process_time()
        result = read(file.parent)
        scores.append(score(case, result))
        seconds = time.process_time() - began
        slowest = max(slowest, seconds)
        counts["cases"] += 1
        for key in tell(case, result, seconds, verbose=arguments.verbose):
            counts[key] += 1
    print(
        ", ".join(f"{key} {count}" for key, count in counts.items()),
        f"slowest {slowest:.2f} s of CPU",
    )
    summarise(scores)


@dataclass(frozen=True)
class Score:
    """How the diagnosis of one case compares with its label."""

    case: dict
    label: str
    is_right: bool
    said: tuple[str, ...]


def score(case: dict, result: readers.Log | Exception) -> Score:
    """The answer to one case, judged; prints what is wrong with it."""
    if isinstance(result, Exception):
        answer = refused(str(result))
    else:
        answer = as_json(diagnose_log(result, source=case["id"]))
    label = str(answer["label"])
    is_right = label in (case["label"], *case["also_acceptable"])
    said = tuple(entry for entry in case["must_not_say"] if is_said(entry, answer))
    wanted = "|".join((case["label"], *case["also_acceptable"]))
    if not is_right or said:
        print(f"{case['id']}  WRONG [{case['confidence']}]: {label}, not {wanted}; said {said}")
    return Score(case, label, is_right, said)


def is_said(entry: str, answer: dict) -> bool:
    """Whether the answer says what it must not: by label, or by the very word."""
    if entry.startswith("any curve diagnosis"):
        return answer["label"] != "insufficient_data"
    named = next((label for label in LABELS if label in entry), None)
    if named is None:
        return entry in json.dumps(answer)
    if "main finding" in entry or named == "healthy":
        return named == answer["label"] and entry != "healthy generalisation"
    return named in json.dumps(answer)


def summarise(scores: list[Score]) -> None:
    """Print shares of right labels, and false words, of all and of two random halves."""
    order = np.random.default_rng(0).permutation(len(scores))
    half = len(scores) // 2
    for name, chosen in (("all", order), ("half A", order[:half]), ("half B", order[half:])):
        for confidence in ("high", "medium", "low", ""):
            some = [scores[i] for i in chosen]
            some = [s for s in some if confidence in ("", s.case["confidence"])]
            right, false = sum(s.is_right for s in some), sum(bool(s.said) for s in some)
            low, high = wilson(right, len(some)) if some else (0.0, 1.0)
            print(
                f"{name:7} {confidence or 'any':7} right {right}/{len(some)} "
                f"({low:.2f} to {high:.2f}), must not be said {false}"
            )


def read(folder: Path) -> readers.Log | Exception:
    """The log of one case, or what reading it raised."""
    inner = [p for p in folder.iterdir() if p.name != "case.yaml"]
    path = inner[0] if len(inner) == 1 else folder
    try:
        return readers.read_log(path)
    except Exception as error:  # a crash is a result here
        return error


def tell(
    case: dict, result: readers.Log | Exception, seconds: float, *, verbose: bool
) -> list[str]:
    """Print one case; return the counts it adds to."""
    if isinstance(result, OrchestratorError):
        print(f"{case['id']}  refused (label {case['label']}): {result.problem}")
        return ["refused"]
    if isinstance(result, Exception):
        print(f"{case['id']}  CRASH {type(result).__name__}: {result}")
        return ["crashes"]
    good = ["format"] * (result.format == case["format"])
    good += ["points"] * (result.n_points == case["n_points"])
    missing = missing_series(case, result)
    good += ["series"] * (not missing)
    shown = {role: f"{len(s)}" for role, s in result.telemetry.series.items()}
    key = {r: f"{result.columns[r]}:{shown[r]}" for r in shown if r in KEY_ROLES}
    other = "" if "format" in good else f" (label: {case['format']})"
    print(
        f"{case['id']}  {result.format}{other}"
        f"  points {result.n_points}/{case['n_points']}  axis {result.axis}  {seconds:.2f} s  {key}"
    )
    if missing:
        print(f"      not found: {missing}")
    if verbose:
        print(f"      columns: {dict(result.columns)}")
        print(f"      facts: {dict(result.facts)}")
        for warning in result.warnings:
            print(f"      ! {warning}")
    return good


KEY_ROLES = ("train/loss", "val/loss", "train/accuracy", "val/accuracy", "lr", "grad_norm")


def missing_series(case: dict, result: readers.Log) -> dict[str, int]:
    """Labelled series that were not found, spelling aside; single values may have become facts."""
    found = {spelt(part) for column in result.columns.values() for part in column.split(" + ")}
    found |= {spelt(name.partition("/")[2]) for name in result.facts}
    found |= {spelt(role) for role in str(result.facts.get("not_computed", "")).split(", ")}
    labelled = {name: n for name, n in case["series"].items() if "#" not in name and name}
    return {name: n for name, n in labelled.items() if spelt(name) not in found}


def spelt(name: str) -> str:
    return re.sub(r"[^0-9a-z.]+", "_", re.sub(r"^version_\d\|", "", name).lower()).strip("_")


if __name__ == "__main__":
    main()
