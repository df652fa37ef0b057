"""A training that takes milliseconds: curves by formula, noise by seed, recorded as by a monitor.

Overfits unless there is dropout; diverges with lr > 1; `decoy` is wired to nothing;
`fault` makes named seeds misbehave.
"""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from orchestrator.telemetry import Writer

EVALS = 40


def main(cfg):
    rng = np.random.default_rng(cfg.seed)
    _misbehave(cfg)
    steps = np.arange(1, EVALS + 1) * 10
    epochs = np.linspace(0, 1, EVALS)
    gap = max(0.0, 1.0 - 2.0 * cfg.dropout)
    probe = 2.3 * np.exp(-8 * epochs) + 0.01
    val = 2.3 * np.exp(-8 * epochs) + 0.05 + gap * epochs**2
    val += 0.02 * rng.standard_normal() + 0.005 * rng.standard_normal(EVALS)
    # What a seed does to one arm it does not quite do to another.
    val += 0.02 * np.random.default_rng([cfg.seed, int(1000 * cfg.dropout)]).standard_normal()
    curves = {
        "probe/loss": probe,
        "val/loss": val,
        "test/loss": val + 0.01,
        "train/loss": probe + 0.01 * rng.random(EVALS),
        "probe/accuracy": 1 - 0.9 * np.exp(-10 * epochs),
        "val/accuracy": 0.97 - 0.2 * gap - 0.87 * np.exp(-10 * epochs),
    }
    if cfg.get("lr", 0.0) > 1:
        # Diverges from the middle on, whatever the seed.
        val[EVALS // 2 :] = probe[EVALS // 2 :] = np.nan
    folder = Path(os.environ["ORCHESTRATOR_TRIAL_FOLDER"]) / "telemetry"
    writer = Writer(folder, {"optimizer": "SGD"})
    for name, values in curves.items():
        writer.write_logged(steps, [name] * EVALS, values)
    writer.close({"steps": int(steps[-1])})


def _misbehave(cfg):
    """`fault: {<seed>: raise|exit|kill|hang}` on the baseline's seeds."""
    time.sleep(cfg.get("seconds", 0.0))
    kind = cfg.get("fault", {}).get(str(cfg.seed))
    if kind == "raise":
        raise RuntimeError(f"seed {cfg.seed} cannot be trained")
    if kind == "exit":
        sys.exit(3)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "hang":
        time.sleep(3600)
