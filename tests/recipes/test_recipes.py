"""Recipes as a user meets them: from the command line, in the clone or copied elsewhere.

Three run to their verdict in tests: digits-null and digits-healthy here, digits-overfitting in
tests/test_readme.py. All of them do in scripts/bench_recipes.py.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPES = sorted(path.parent for path in (ROOT / "recipes").glob("*/exp.yaml"))


def orchestrator(verb: str, *tokens: str, cwd: Path = ROOT) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "orchestrator", verb, *tokens]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_null_recipe_reaches_the_verdict_of_its_readme(tmp_path):
    bench = [sys.executable, str(ROOT / "scripts" / "bench_recipes.py")]
    done = subprocess.run(
        [*bench, "digits-null", "budget=smoke", "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "digits-null: as expected" in done.stdout


def test_a_healthy_training_copied_elsewhere_is_left_alone(tmp_path):
    shutil.copytree(ROOT / "recipes" / "digits-healthy", tmp_path / "mine")
    said = orchestrator("run", "conf=mine/exp.yaml", "tracking_uri=null", cwd=tmp_path)
    assert "No finding" in said
    assert "nothing was found that needs explaining" in said
    assert "better" not in said


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_every_recipe_can_be_planned(recipe, tmp_path):
    said = orchestrator("plan", f"conf={recipe / 'exp.yaml'}", f"folder={tmp_path}")
    assert "original configuration" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_every_readme_says_what_is_expected_and_how_to_run_it(recipe):
    readme = (recipe / "README.md").read_text(encoding="utf-8")
    assert f"python -m orchestrator run conf=recipes/{recipe.name}/exp.yaml" in readme
    assert "```yaml\n# expected\nfinding: " in readme
