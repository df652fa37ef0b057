"""Every command of the README, run as it stands there; only the interpreter is this one."""

import math
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)

SCORES = "arm,seed,value\n" + "".join(
    f"{arm},{seed},{0.9 + gain + 0.001 * seed * (-1) ** seed}\n"
    for arm, gain in (("base", 0.0), ("tuned", 0.05))
    for seed in range(5)
)

CURVES = "step,train_loss,val_loss\n" + "".join(
    f"{s},{fit + 0.05},{fit + 0.2 + 0.01 * max(0, s - 40)}\n"
    for s, fit in ((s, 2.3 * math.exp(-s / 20)) for s in range(100))
)
DRAWS = random.Random(0)
NORMS = "step,loss,lr,grad_norm\n" + "".join(
    f"{s},{2.3 * math.exp(-s / 300)},0.1,{math.exp(DRAWS.gauss(0, 0.3))}\n" for s in range(600)
)


def commands(block: str) -> list[str]:
    return [c.strip() for line in block.splitlines() for c in line.split("#")[0].split("&&")]


def run(command: str, cwd: Path) -> str:
    """Run one command line with this interpreter in place of the one it names."""
    python, *arguments = shlex.split(command)
    assert python in ("python", ".venv/bin/python")
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_set_up_commands_are_those_of_ci():
    main, check, _ = BLOCKS
    assert commands(check) == ["scripts/setup dev", "scripts/check"]
    assert commands(main)[0] == "scripts/setup"
    assert "scripts/setup dev && scripts/check" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_main_job_and_the_verbs_do_what_the_readme_says(tmp_path):
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    main, _, verbs = BLOCKS
    said = run(commands(main)[1], tmp_path)
    assert "confirmed, adopted" in said
    assert "On the test split, read once" in said
    assert (tmp_path / "runs" / "digits-overfitting" / "report" / "report.html").exists()
    assert (tmp_path / "runs" / "mlflow.db").exists()

    # The verbs, beside the campaign file and on what was just run.
    beside = tmp_path / "recipes" / "digits-overfitting"
    (beside / "runs").symlink_to(tmp_path / "runs")
    (beside / "scores.csv").write_text(SCORES)
    (beside / "log.csv").write_text(CURVES)
    (beside / "norms.csv").write_text(NORMS)
    told = {command.split()[3]: run(command, beside) for command in commands(verbs)}
    asked = {"plan", "run", "status", "explain", "report", "compare", "diagnose", "propose-clip"}
    assert set(told) == asked
    assert "weight_decay" in told["plan"]
    assert "The loop stopped" in told["run"]
    assert "weight_decay" in told["status"]
    assert "interval" in told["explain"]
    assert "report.html" in told["report"]
    assert "tuned: better" in told["compare"]
    assert "overfitting" in told["diagnose"]
    assert "max_norm" in told["propose-clip"]
