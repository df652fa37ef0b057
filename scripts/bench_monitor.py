"""What the monitor costs: CPU time of a training step, as a ratio to the bare loop's; and a store.

    python scripts/bench_monitor.py [rounds]

One thread. The variants take turns in blocks of 20 steps, so that a busy machine hits all alike.
Printed: the median over rounds of block against bare block with its quartiles, and the ratio of the
sums, which has the flushes in it (noisier). "bare again" shows what of it is noise. Data: random.
Models and targets: docs/diagnosis.md, "Cost of monitoring".
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from orchestrator.monitor import Monitor, buffer, watch
from orchestrator.telemetry import Writer, read, signals

BLOCK = 20  # steps
LIMIT = 1.0  # max_norm


def mlp() -> tuple[nn.Module, Tensor, Tensor]:
    layers = (nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return nn.Sequential(*layers), torch.randn(128, 784), torch.randint(10, (128,))


def transformer() -> tuple[nn.Module, Tensor, Tensor]:
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    trunk = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(256, 128), trunk, nn.Linear(128, 256))
    tokens = torch.randint(256, (16, 64))
    return model, tokens, tokens.roll(-1, 1)


class Variant:
    """A training that is taken up again and again for a block of steps."""

    def __init__(
        self,
        build: Callable[[], tuple[nn.Module, Tensor, Tensor]],
        *,
        clips: bool,
        start: Callable[[nn.Module, torch.optim.Optimizer], Monitor] | None,
    ) -> None:
        torch.manual_seed(0)
        self.model, self.inputs, self.targets = build()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.monitor = start(self.model, self.optimizer) if start else None
        self.clips = clips

    def block(self) -> float:
        """CPU seconds of a block of steps."""
        before = time.process_time()
        for _ in range(BLOCK):
            logits = self.model(self.inputs)
            loss = nn.functional.cross_entropy(logits.flatten(0, -2), self.targets.flatten())
            self.optimizer.zero_grad()
            loss.backward()
            if self.clips and self.monitor:
                self.monitor.clip_grad_norm_(LIMIT)
            elif self.clips:
                nn.utils.clip_grad_norm_(self.model.parameters(), LIMIT)
            self.optimizer.step()
            if self.monitor:
                self.monitor.log(train_loss=loss)
        return time.process_time() - before


def bench(name: str, build: Callable[[], tuple[nn.Module, Tensor, Tensor]], rounds: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:

        def recording(every: int) -> Callable[[nn.Module, torch.optim.Optimizer], Monitor]:
            return lambda model, optimizer: watch(
                model, optimizer, every=every, folder=Path(tempfile.mkdtemp(dir=scratch))
            )

        variants = {
            "bare": Variant(build, clips=False, start=None),
            "bare again": Variant(build, clips=False, start=None),
            "watch, not recording": Variant(build, clips=False, start=watch),
            "watch": Variant(build, clips=False, start=recording(10)),
            "watch, every step": Variant(build, clips=False, start=recording(1)),
            "torch clips": Variant(build, clips=True, start=None),
            "watch clips": Variant(build, clips=True, start=recording(10)),
        }
        # Each trains for a share of the time, and is to flush as often per step as if alone.
        buffer._FLUSH_SECONDS = 2.0 * len(variants)
        for variant in variants.values():
            variant.block()
        seconds: dict[str, list[float]] = {name: [] for name in variants}
        for turn in range(rounds):
            order = list(variants)[turn % len(variants) :] + list(variants)[: turn % len(variants)]
            for label in order:
                seconds[label].append(variants[label].block())
        bare = statistics.median(seconds["bare"]) / BLOCK
        print(f"\n{name}: {1e3 * bare:.2f} ms CPU per bare step")
        for label, blocks in seconds.items():
            ratios = [block / bare for block, bare in zip(blocks, seconds["bare"], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            total = sum(blocks) / sum(seconds["bare"])
            print(f"  {label:22} {middle:.3f}  ({low:.3f} .. {high:.3f})  sums {total:.3f}")
        for variant in variants.values():
            if variant.monitor:
                variant.monitor.close()


def store(steps: int = 1_000_000, layers: int = 100, every: int = 100, chunk: int = 500) -> None:
    """Seconds to write and to read a long trial, in the chunks that the monitor writes."""
    rng = np.random.default_rng(0)
    names = [f"blocks.{i}.weight" for i in range(layers)]
    columns = ("lr", "grad_norm", "clip_coefficient", "max_norm", "step_seconds")
    quantities = ("grad_norm", "param_norm", "update_ratio")
    values = rng.random(chunk)
    grid = rng.random((chunk // every, layers)).astype(np.float32)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        began = time.perf_counter()
        writer = Writer(folder, {})
        for first in range(0, steps, chunk):
            at = np.arange(first, first + chunk)
            writer.write_steps(at, dict.fromkeys(columns, values))
            writer.write_layers(at[::every], names, dict.fromkeys(quantities, grid))
            writer.write_logged(at, ["train/loss"] * chunk, values)
        writer.close({})
        written = time.perf_counter()
        telemetry = read(folder)
        was_read = time.perf_counter()
        signals(telemetry)
        size = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
        print(f"\nstore, {steps:,} steps, {layers} layers every {every}: {size:.0f} MiB")
        print(f"  write {written - began:.1f} s, read {was_read - written:.1f} s", end=", ")
        print(f"signals {time.perf_counter() - was_read:.1f} s")


def main() -> None:
    torch.set_num_threads(1)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    bench("MLP 784-256-256-10, batch 128", mlp, rounds)
    bench("transformer, 4 layers, d 128, 16 x 64 tokens", transformer, rounds // 3)
    store()


if __name__ == "__main__":
    main()
