"""What the monitor costs: CPU time of a training step, as a ratio to the bare loop's; and a store.

    python scripts/bench_monitor.py [rounds] [words of the variants wanted]

One thread. Each variant's steps alternate with bare ones, in blocks of 20, so that a busy machine
hits both alike; variants that clip alternate with torch's clipping. Printed: the median over rounds
of block against block with its quartiles, and the ratio of the sums, which has in it what is rarer
than a block: flushes, and all that is done every 100 steps. "bare again" shows what of it is noise.
Data: random. Targets: norms 1.03 against clipping, default 1.08 on the MLP and 1.04 on the
transformer, strided norms 1.01.
"""

from __future__ import annotations

import importlib.util
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from orchestrator.monitor import buffer, watch
from orchestrator.telemetry import Writer, read, signals

BLOCK = 20  # steps
EARLY = 60  # steps, of which more are sampled
LIMIT = 1.0  # max_norm
Build = Callable[[], tuple[nn.Module, Tensor, Tensor]]


def mlp() -> tuple[nn.Module, Tensor, Tensor]:
    layers = (nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return nn.Sequential(*layers), torch.randn(128, 784), torch.randint(10, (128,))


def transformer() -> tuple[nn.Module, Tensor, Tensor]:
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    trunk = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(256, 128), trunk, nn.Linear(128, 256))
    tokens = torch.randint(256, (16, 64))
    return model, tokens, tokens.roll(-1, 1)


# --- what a loop does beside training -----------------------------------------------------------


def _nothing(*_: object) -> None:
    pass


@dataclass
class Extra:
    """What is called before the optimizer's step, and after it with the loss; and at the end."""

    before: Callable[[], object] = _nothing
    after: Callable[[Tensor], object] = _nothing
    close: Callable[[], object] = _nothing


Start = Callable[[nn.Module, torch.optim.Optimizer, Path | None], Extra]


def bare(*_: object) -> Extra:
    return Extra()


def torch_clips(model: nn.Module, *_: object) -> Extra:
    return Extra(before=lambda: nn.utils.clip_grad_norm_(model.parameters(), LIMIT))


def watched(*, clips: bool = False, records: bool = True, **options: str | int) -> Start:
    def start(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path | None) -> Extra:
        monitor = watch(model, optimizer, folder=folder if records else None, **options)
        return Extra(
            before=(lambda: monitor.clip_grad_norm_(LIMIT)) if clips else _nothing,
            after=lambda loss: monitor.log(train_loss=loss),
            close=monitor.close,
        )

    return start


def item_norms(model: nn.Module, *_: object) -> Extra:
    """The loop that people write: one transfer for each parameter, every step."""
    norms: dict[str, list[float]] = {}

    def before() -> None:
        for name, p in model.named_parameters():
            if p.grad is not None:
                norms.setdefault(name, []).append(p.grad.norm().item())

    return Extra(before=before)


def tensorboard(every: int) -> Start:
    def start(model: nn.Module, _: object, folder: Path | None) -> Extra:
        from torch.utils.tensorboard import SummaryWriter

        writer, steps = SummaryWriter(str(folder)), itertools.count()

        def after(loss: Tensor) -> None:
            step = next(steps)
            if step % every == 0:
                writer.add_scalar("loss", loss, step)
                for name, p in model.named_parameters():
                    writer.add_histogram(name, p, step)
                    if p.grad is not None:
                        writer.add_histogram(f"{name}.grad", p.grad, step)

        return Extra(after=after, close=writer.close)

    return start


def wandb_watch(every: int) -> Start:
    def start(model: nn.Module, _: object, folder: Path | None) -> Extra:
        import wandb

        if wandb.run is None:  # its hooks log into the one run of the process
            settings = wandb.Settings(silent=True, console="off")
            wandb.init(mode="offline", dir=str(folder), settings=settings)
        run = wandb.run
        run.watch(model, log="all", log_freq=every, idx=every)
        return Extra(after=lambda loss: run.log({f"loss {every}": loss}), close=run.finish)

    return start


VARIANTS: dict[str, Start] = {
    "bare again": bare,
    "watch, not recording": watched(records=False),
    "off": watched(level="off"),
    "norms": watched(level="norms"),
    "norms strided, every 100": watched(level="norms", every=100),
    "default": watched(level="default"),
    "default, every step": watched(level="default", every=1),
    "full": watched(level="full"),
    "full, every step": watched(level="full", every=1),
    "torch clips": torch_clips,
    "norms, clips": watched(level="norms", clips=True),
    "default, clips": watched(level="default", clips=True),
    "full, clips": watched(level="full", clips=True),
    "item() per parameter": item_norms,
    "TensorBoard every step": tensorboard(1),
    "TensorBoard every 100": tensorboard(100),
    "wandb.watch every step": wandb_watch(1),
    "wandb.watch every 100": wandb_watch(100),
}
PEERS = {"TensorBoard": "tensorboard", "wandb.watch": "wandb"}  # and the module each needs


def wanted(words: list[str]) -> dict[str, Start]:
    """Variants that are installed here and have one of `words` in their names, if any are given."""
    missing = [peer for peer, module in PEERS.items() if importlib.util.find_spec(module) is None]
    for peer in missing:
        print(f"{peer} is not installed here, and is left out")
    return {
        name: start
        for name, start in VARIANTS.items()
        if not any(name.startswith(peer) for peer in missing)
        and (not words or any(word in name for word in words))
    }


# --- the bench ----------------------------------------------------------------------------------


class Variant:
    """A training that is taken up again and again for a step."""

    def __init__(self, build: Build, start: Start, folder: Path) -> None:
        torch.manual_seed(0)
        self.model, self.inputs, self.targets = build()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.extra = start(self.model, self.optimizer, folder)

    def step(self) -> float:
        """CPU seconds of an optimizer step."""
        before = time.process_time()
        logits = self.model(self.inputs)
        loss = nn.functional.cross_entropy(logits.flatten(0, -2), self.targets.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.extra.before()
        self.optimizer.step()
        self.extra.after(loss)
        return time.process_time() - before


def bench(title: str, build: Build, starts: dict[str, Start], rounds: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:

        def made(start: Start) -> Variant:
            return Variant(build, start, Path(tempfile.mkdtemp(dir=scratch)))

        bases = {True: made(torch_clips), False: made(bare)}
        variants = {name: made(start) for name, start in starts.items()}
        # Each trains for a share of the time, and is to flush as often per step as if alone.
        buffer._FLUSH_SECONDS = 2.0 * 2 * len(variants)
        for variant in (*bases.values(), *variants.values()):
            for _ in range(EARLY):
                variant.step()
        blocks: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
        for _ in range(rounds):
            for name, variant in variants.items():
                base = bases[name.endswith(", clips")]
                pairs = [(base.step(), variant.step()) for _ in range(BLOCK)]
                blocks[name].append((sum(b for b, _ in pairs), sum(v for _, v in pairs)))
        for variant in variants.values():
            variant.extra.close()
    bare_steps = [b / BLOCK for name in variants if ", clips" not in name for b, _ in blocks[name]]
    print(f"\n{title}: {1e3 * statistics.median(bare_steps):.2f} ms CPU per bare step")
    for name, pairs in blocks.items():
        low, middle, high = statistics.quantiles([v / b for b, v in pairs], n=4)
        total = sum(v for _, v in pairs) / sum(b for b, _ in pairs)
        print(f"  {name:24} {middle:.3f}  ({low:.3f} .. {high:.3f})  sums {total:.3f}")


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
    starts = wanted(sys.argv[2:])
    bench("MLP 784-256-256-10, batch 128", mlp, starts, rounds)
    bench("transformer, 4 layers, d 128, 16 x 64 tokens", transformer, starts, rounds // 6)
    store()


if __name__ == "__main__":
    main()
