"""The wheel works outside the clone, its config groups and its launcher included."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def python(*arguments: str, cwd: Path, site: str = "") -> str:
    environment = os.environ | {"PYTHONPATH": site}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_installed_wheel_runs_a_campaign_file_copied_elsewhere(tmp_path):
    python("-m", "build", "--wheel", "--no-isolation", "-o", str(tmp_path), str(ROOT), cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    site = str(tmp_path / "site")
    python(
        "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", site, str(wheel),
        cwd=tmp_path,
    )  # fmt: skip
    where = python(
        "-c", "import orchestrator; print(orchestrator.__file__)", cwd=tmp_path, site=site
    )
    assert where.startswith(site)
    shutil.copytree(ROOT / "recipes" / "digits-healthy", tmp_path / "elsewhere" / "mine")
    said = python(
        "-m", "orchestrator", "run", "conf=mine/exp.yaml", "tracking_uri=null", "protocol=quick",
        cwd=tmp_path / "elsewhere", site=site,
    )  # fmt: skip
    assert "nothing was found that needs explaining" in said
    assert (tmp_path / "elsewhere" / "runs" / "mine" / "ledger.jsonl").exists()
