import subprocess
import sys
import time

import pytest

HEAVY = ["torch", "mlflow", "tensorboard", "pandas", "pyarrow", "scipy", "matplotlib"]


def test_reading_a_csv_imports_nothing_heavy(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("epoch,loss\n1,2\n2,1\n")
    code = (
        "import sys\nfrom pathlib import Path\nfrom orchestrator.telemetry import readers\n"
        f"readers.read_log(Path({str(path)!r}))\n"
        f"print([p for p in {HEAVY!r} if p in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def megabyte(line):
    lines = []
    size = 0
    while size < 1 << 20:
        lines.append(line(len(lines)))
        size += len(lines[-1]) + 1
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("x.csv", lambda i: f"{i},{1 / (i + 1)},{0.5},{1e-4}" if i else "step,loss,acc,lr"),
        ("x.log", lambda i: f"s:{i} trl:{1 / (i + 1):.4f} lr:0.0001 norm:1.25"),
        ("x.jsonl", lambda i: f'{{"step": {i}, "loss": {1 / (i + 1)}, "lr": 0.001}}'),
        ("noise.log", lambda i: f"INFO the loss of file number {i} is 12:30:11 worse than epochs"),
    ],
)
def test_a_megabyte_takes_under_a_second_of_cpu(read, name, line):
    text = megabyte(line) + "step 1: loss 1.0\n" * (name == "noise.log")
    read(name, text)  # compiles regular expressions
    began = time.process_time()
    log = read(name, text)
    assert time.process_time() - began < 1.5  # measured 0.3-0.6 s; a busy machine is slower
    assert log.telemetry.series
