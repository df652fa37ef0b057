"""Two processes that train together (gloo): one records, and what it records is both's."""

import contextlib
import json
import multiprocessing

import pytest
import torch
from plain_record import batches, mlp
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from orchestrator import watch
from orchestrator.telemetry import read

STEPS, LIMIT = 24, 0.3
LEVEL = "full"  # on the one rank that records: a collective call of ours would wait for the other


class Experts(nn.Module):
    """Only one of two gets a gradient, each for three steps."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(5, 3) for _ in range(2))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.experts[self.calls // 3 % 2](x)


TRAININGS = {"plain": (mlp, 1), "accumulated": (mlp, 3), "unused": (Experts, 1)}  # micro-batches


def fit(model, folder, steps, *, micro=1):
    """Total norms before clipping of a training in which each step has `micro` batches."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    monitor = watch(model, optimizer, level=LEVEL, folder=folder)
    norms = []
    for step in steps:
        optimizer.zero_grad()
        for i, (x, y) in enumerate(step):
            waits = isinstance(model, DistributedDataParallel) and i < micro - 1
            with model.no_sync() if waits else contextlib.nullcontext():
                loss = nn.functional.cross_entropy(model(x), y)
                (loss / micro).backward()
            monitor.log(train_loss=loss)
        norm = monitor.clip_grad_norm_(LIMIT)
        norms.append(float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm))
        optimizer.step()
        monitor.log(val_loss=0.5)
    monitor.close()
    return norms


def halves(steps, rank):
    return [[(x.chunk(2)[rank], y.chunk(2)[rank]) for x, y in step] for step in steps]


def work(rank, folder):
    """One of the two processes: each model is trained, its norms and weights are left in files."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=2)
    for name, (make, micro) in TRAININGS.items():
        torch.manual_seed(0)
        model = make()
        wrapped = DistributedDataParallel(model, find_unused_parameters=name == "unused")
        norms = fit(wrapped, folder / name, halves(batches(STEPS, micro), rank), micro=micro)
        weights = [p.tolist() for p in model.parameters()]
        (folder / f"{name}-{rank}.json").write_text(json.dumps([norms, weights]))
    torch.manual_seed(0)
    model = mlp()
    for module in (*(m for m in model if isinstance(m, nn.Linear)), model):
        fully_shard(module, mesh=init_device_mesh("cpu", (2,)))
    norms = fit(model, folder / "sharded", halves(batches(STEPS), rank))
    weights = [p.full_tensor().tolist() for p in model.parameters()]
    (folder / f"sharded-{rank}.json").write_text(json.dumps([norms, weights]))
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of the two."""
    folder = tmp_path_factory.mktemp("two")
    # A server of forks has no threads, whatever tests ran in this process before.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "orchestrator.monitor"])
    two = [context.Process(target=work, args=(rank, folder)) for rank in range(2)]
    for process in two:
        process.start()
    for process in two:
        process.join(120)
        process.kill()
        process.join()
    assert [process.exitcode for process in two] == [0, 0]
    return folder


@pytest.mark.parametrize("name", TRAININGS)
def test_one_of_two_processes_records_what_both_do(tmp_path, trained, name):
    (ours, theirs) = (json.loads((trained / f"{name}-{rank}.json").read_text()) for rank in (0, 1))
    assert ours == theirs
    telemetry = read(trained / name)
    assert telemetry["grad_norm"].values == pytest.approx(ours[0])
    assert telemetry.header["world_size"] == 2
    assert {path.name[:4] for path in (trained / name / "telemetry").glob("*.arrow")} == {"0001"}

    make, micro = TRAININGS[name]
    torch.manual_seed(0)
    fit(make(), tmp_path, batches(STEPS, micro), micro=micro)
    alone = read(tmp_path)
    assert telemetry.series.keys() == alone.series.keys()
    for series in telemetry.series.keys() - {"step_seconds", "train/loss"}:  # its half's loss
        assert telemetry[series].steps.tolist() == alone[series].steps.tolist()
        if series.startswith("activation_"):  # of its half
            continue
        assert telemetry[series].values == pytest.approx(alone[series].values, rel=1e-3, abs=1e-6)


def test_of_shards_the_norm_over_all_is_recorded_where_it_is_clipped(tmp_path, trained):
    (ours, theirs) = (json.loads((trained / f"sharded-{rank}.json").read_text()) for rank in (0, 1))
    assert ours == theirs
    torch.manual_seed(0)
    fit(mlp(), tmp_path, batches(STEPS))
    telemetry, alone = read(trained / "sharded"), read(tmp_path)
    for name in ("grad_norm", "clip_coefficient", "max_norm", "lr", "nonfinite"):
        assert telemetry[name].steps.tolist() == alone[name].steps.tolist()
        assert telemetry[name].values == pytest.approx(alone[name].values, rel=1e-3, abs=1e-6)
    assert telemetry["grad_norm"].values == pytest.approx(ours[0])
    assert telemetry.header["grad_norm_seen"] == "unclipped"
    assert not telemetry.layers("update_ratio")
