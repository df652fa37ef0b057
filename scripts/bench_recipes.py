"""Whole campaigns: every recipe, what its README expects beside what came out.

    python scripts/bench_recipes.py [NAME ...] [--folder FOLDER] [key=value ...]

Without names, all of them, one after another. Campaign folders go below FOLDER (a temporary one);
MLflow is left out; overrides are handed on. Exit code 1 if a recipe does not reach the verdict that
its README expects. Seeds are those of exp.yaml, fixed before the first run; wall seconds are this
machine's, and say nothing where it has other work.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from orchestrator.nouns import Call, Record  # noqa: E402
from orchestrator.record import load  # noqa: E402

RECIPES = ROOT / "recipes"
EXPECTED = re.compile(r"```yaml\n# expected\n(.+?)```", re.DOTALL)


def main() -> int:
    names = sorted(p.parent.name for p in RECIPES.glob("*/exp.yaml"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", metavar="NAME or key=value", help=", ".join(names))
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    tokens = [word for word in options.words if "=" in word]
    chosen = [word for word in options.words if "=" not in word] or names
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        reached = [run(name, folder / name, tokens) for name in chosen]
    return 0 if all(reached) else 1


def run(name: str, folder: Path, tokens: list[str]) -> bool:
    """Run one recipe, print what came out, and tell whether it is what was expected."""
    command = [sys.executable, "-m", "orchestrator", "run", f"conf={RECIPES / name / 'exp.yaml'}"]
    command += [f"folder={folder}", "tracking_uri=null", *tokens]
    start, cpu = time.perf_counter(), cpu_seconds()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    seconds, cpu = time.perf_counter() - start, cpu_seconds() - cpu
    if done.returncode != 0:
        print(f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return False
    record = load(folder)
    wanted, got = expected(RECIPES / name / "README.md"), obtained(record)
    differing = [key for key, value in wanted.items() if got[key] != value]
    word = "DIFFERS" if differing else "as expected"
    facts = ", ".join(f"{key}: {got[key]}" for key in wanted)
    cost = f"{len(record.outcomes)} trials in {seconds:.0f} s, {cpu:.0f} s of CPU time"
    print(f"{name}: {word} ({facts}); {cost}", flush=True)
    for key in differing:
        print(f"  {key}: expected {wanted[key]}, obtained {got[key]}")
    if differing:
        print(done.stdout + done.stderr)
    return not differing


def cpu_seconds() -> float:
    """Of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def expected(readme: Path) -> dict[str, object]:
    """The mapping in the README's block of YAML that begins with `# expected`."""
    block = EXPECTED.search(readme.read_text(encoding="utf-8"))
    assert block is not None, f"{readme} does not say what is expected"
    found: dict[str, object] = yaml.safe_load(block[1])
    return found


def obtained(record: Record) -> dict[str, object]:
    """What a README may expect.

    `finding` and `adopted` (a factor) are the first round's, `better_on_test` is final against
    original on the test split, `unwired` whether an arm was found identical to the baseline,
    `worse` the arms that were judged worse or unstable.
    """
    first = record.rounds[0]
    confirmed = first.confirmation
    verdicts = [v for r in record.rounds for result in r.results for v in result.verdicts]
    on_test = record.headline.test if record.headline else None
    return {
        "finding": first.findings[0].rule if first.findings else None,
        "adopted": factor(record, confirmed.ablation) if confirmed and confirmed.adopted else None,
        "better_on_test": on_test is not None and on_test.arms[0].p_better <= on_test.alpha,
        "worse": ", ".join(v.arm for v in verdicts if v.call in (Call.WORSE, Call.UNSTABLE)),
        "unwired": any("is the factor wired up?" in v.reason for v in verdicts),
    }


def factor(record: Record, ablation: str) -> str:
    plan = record.rounds[0].plan
    assert plan is not None
    return next(a.factor.name for a in plan.ablations if a.name == ablation)


if __name__ == "__main__":
    sys.exit(main())
