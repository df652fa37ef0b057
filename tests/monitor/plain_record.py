"""Small trainings, and what there is to record of one, derived slowly and plainly."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from orchestrator import watch
from orchestrator.telemetry import read

PAGE = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

Series = dict[str, dict[int, float]]
Counts = dict[str, dict[int, list[int]]]
Steps = list[list[tuple[Tensor, Tensor]]]  # per optimizer step: its micro-batches


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))


def batches(steps: int, micro: int = 1, seed: int = 1) -> Steps:
    rng = torch.Generator().manual_seed(seed)
    return [
        [
            (torch.randn(6, 5, generator=rng), torch.randint(3, (6,), generator=rng))
            for _ in range(micro)
        ]
        for _ in range(steps)
    ]


def norm(tensors: Iterable[Tensor]) -> float:
    return torch.sqrt(sum((t.detach().double() ** 2).sum() for t in tensors)).item()


def sampled(step: int, every: int, histograms: int | None = None) -> bool:
    counted = histograms is not None and (step in (0, 100) or step % histograms == 0)
    return counted or step % (min(every, 2) if step < 60 else every) == 0


def cosine(first: Tensor, second: Tensor) -> float | None:
    """None where there is no angle."""
    lengths = norm([first]) * norm([second])
    return (first.double() * second.double()).sum().item() / lengths if lengths else None


def histogram(tensor: Tensor) -> list[int]:
    """Zeros; powers of two from -40 to 19, what is beyond with the last; not finite."""
    counts = [0] * 62
    for value in tensor.flatten().tolist():
        if value == 0:
            counts[0] += 1
        elif not math.isfinite(value):
            counts[61] += 1
        else:
            counts[1 + min(max(math.floor(math.log2(abs(value))), -40), 19) + 40] += 1
    return counts


class Move(NamedTuple):
    """A layer's step: its gradient, the parameter before and the update, in whole."""

    gradient: Tensor
    before: Tensor
    update: Tensor
    is_sparse: bool

    def touched(self) -> Tensor:
        return torch.tensor([bool((row != 0).any()) for row in self.gradient])

    def on(self, rows: Tensor) -> "Move":
        return Move(*(tensor[rows] for tensor in self[:3]), self.is_sparse)


def moves(name: str, now: Move, last: Move | None, is_table: bool, level: str) -> dict[str, float]:
    """What there is to record of a layer with a gradient."""
    found: dict[str, float | None] = {}
    rows = now.touched() if is_table else ...
    if is_table:
        found["touched_rows"] = rows.sum().item() / len(rows)
    part = now.on(rows)
    found["grad_norm"] = norm([part.gradient])
    found["param_norm"] = norm([part.before])
    found["update_norm"] = norm([part.update])
    if found["param_norm"] or found["update_norm"]:
        found["update_ratio"] = found["update_norm"] / (found["param_norm"] or 1e-300)
    if level == "full":
        values = part.gradient.flatten().tolist()
        found["grad_zeros"] = sum(v == 0 for v in values) / len(values) if values else None
        found["grad_nonfinite"] = sum(not math.isfinite(v) for v in values)
        if last is not None and not now.is_sparse:
            both = now.touched() & last.touched() if is_table else ...
            one, other = now.on(both), last.on(both)
            found["grad_cosine"] = cosine(one.gradient, other.gradient)
            found["update_cosine"] = cosine(one.update, other.update)
    return {f"{quantity}/{name}": v for quantity, v in found.items() if v is not None}


def record(
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    steps: Steps,
    *,
    every: int,
    max_norm: float | None = None,
    loss_of: Callable[[nn.Module, Tensor, Tensor], Tensor] | None = None,
    level: str = "default",
    tables: Collection[str] = (),
    histograms: int = 1000,
    counts: Counts | None = None,
) -> Series:
    """Train `model` without a monitor; series by name, each step -> value.

    `tables` are embeddings: what counts of them is the rows whose gradient is not zero. Histograms
    are put into `counts`.
    """
    loss_of = loss_of or (lambda m, x, y: nn.functional.cross_entropy(m(x), y))
    series: Series = {}
    last: dict[str, Move] = {}

    def put(name: str, step: int, value: float) -> None:
        series.setdefault(name, {})[step] = float(value)

    for step, micro in enumerate(steps):
        model.zero_grad()
        losses = [loss_of(model, x, y) for x, y in micro]
        for loss in losses:
            (loss / len(micro)).backward()
        put("train/loss", step, sum(loss.item() for loss in losses) / len(losses))
        gradients = {
            name: p.grad.to_dense().clone()
            for name, p in model.named_parameters()
            if p.grad is not None
        }
        total = norm(gradients.values())
        put("grad_norm", step, total)
        put("nonfinite", step, sum(not g.isfinite().all() for g in gradients.values()))
        put("micro_batches", step, len(micro))
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            put("max_norm", step, max_norm)
            put("clip_coefficient", step, min(1, max_norm / (total + 1e-6)))
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        for i, group in enumerate(groups):
            put(f"lr/{i}" if i else "lr", step, group["lr"])
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        for optimizer in optimizers:
            optimizer.step()
        moved = {
            name: Move(gradients[name], before[name], p.detach() - before[name], p.grad.is_sparse)
            for name, p in model.named_parameters()
            if name in gradients
        }
        if sampled(step, every, histograms if level == "full" else None):
            for name in before:
                if name in moved:
                    found = moves(name, moved[name], last.get(name), name in tables, level)
                    for series_name, value in found.items():
                        put(series_name, step, value)
                elif name not in tables:
                    put(f"param_norm/{name}", step, norm([before[name]]))
        if counts is not None and (step in (0, 100) or step % histograms == 0):
            for name, value in before.items():
                whole = {"param": value}
                if name in moved:
                    part = moved[name].on(moved[name].touched() if name in tables else ...)
                    whole = dict(zip(("grad", "param", "update"), part[:3], strict=True))
                for what, tensor in whole.items() if name in moved or name not in tables else ():
                    counts.setdefault(f"{what}/{name}", {})[step] = histogram(tensor)
        last = moved
    return series


def start(folder=None, **options):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, watch(model, optimizer, folder=folder, **options)


def fit(model, optimizer, steps, each=lambda step, loss: None, before=lambda step, loss: None):
    for step, ((x, y),) in enumerate(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        before(step, loss)
        optimizer.step()
        each(step, loss)


def points(folder, name):
    series = read(folder)[name]
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def same_telemetry(first, second, rel=1e-6, is_compiled=False):
    """The telemetry in two folders, of which everything but times must be the same.

    Of a compiled model (the first), what modules put out is not recorded.
    """
    ours, theirs = read(first), read(second)
    timed = {"step_seconds"}
    expected = theirs.series.keys() - timed
    if is_compiled:
        expected = {name for name in expected if not name.startswith("activation_")}
        assert ours.header.pop("activations") == "not recorded: torch.compile"
    assert ours.series.keys() - timed == expected
    for name in expected:
        assert ours[name].steps.tolist() == theirs[name].steps.tolist(), name
        assert ours[name].values == pytest.approx(theirs[name].values, rel=rel, nan_ok=True), name
    assert ours.header == theirs.header
    return ours


class Waits(TorchDispatchMode):
    """Counts what makes the host wait for the device."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket._qualified_op_name
        self.count += name in ("aten::_local_scalar_dense", "aten::equal", "aten::nonzero")
        return func(*args, **(kwargs or {}))
