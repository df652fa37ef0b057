"""Campaigns on the toy training, driven from the command line as a user does."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from orchestrator.ledger import FILE, read_lines
from orchestrator.nouns import Record
from orchestrator.record import load

TOY = Path(__file__).parent / "programs" / "toy.py"


def prepared(folder: Path, text: str) -> Path:
    """The campaign file in `folder`, with the training beside it."""
    shutil.copy(TOY, folder / "toy.py")
    (folder / "exp.yaml").write_text(text)
    return folder / "exp.yaml"


def command(exp: Path, verb: str, *tokens: str) -> list[str]:
    places = [f"conf={exp}", f"folder={exp.parent / 'campaign'}"]
    return [sys.executable, "-m", "orchestrator", verb, *places, *tokens]


def said_by(argv: list[str], *, code: int = 0) -> str:
    """What a command said on both streams, however it was wrapped."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == code, said
    assert "Traceback" not in done.stderr, said
    return said


def run(exp: Path, *tokens: str, verb: str = "run", code: int = 0) -> str:
    return said_by(command(exp, verb, *tokens), code=code)


def record(exp: Path) -> Record:
    return load(exp.parent / "campaign")


def steps(exp: Path) -> list[str]:
    """The steps done so far, of a campaign that may be running."""
    return [str(line["step"]) for line in read_lines(exp.parent / "campaign" / FILE)]


def wait_until(exp: Path, done: Callable[[list[str]], bool], *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if done(steps(exp)):
            return
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s; done: {steps(exp)}")
