"""Everything that is recorded of layers at level full, against tests/monitor/plain_record.py."""

import copy
from functools import partial

import pytest
import torch
from plain_record import batches, mlp, points, record
from test_quantities import Experts, Tied, adamw, check, same, sgd, tokens, train
from torch import Tensor, nn

from orchestrator import watch
from orchestrator.telemetry import read

COSINES = ("grad_cosine", "update_cosine")


def check_full(folder, model, make, steps, *, histograms=1000, **options):
    """As `check`, and the histograms must be the same too."""
    twin, counts = copy.deepcopy(model), {}
    names = {"level": "full", "histograms": histograms}
    telemetry = check(folder, model, make, steps, **names, **options)
    plain = {name: options[name] for name in options.keys() & {"max_norm", "loss_of", "tables"}}
    every = options.get("every", 10)
    record(twin, make(twin), steps, every=every, **names, **plain, counts=counts)
    assert telemetry.histograms.keys() == counts.keys()
    for name, expected in counts.items():
        seen = telemetry.histograms[name]
        assert seen.steps.tolist() == list(expected)
        rows = zip(seen.zeros, seen.counts, seen.nonfinite, strict=True)
        assert [[zeros, *bins, bad] for zeros, bins, bad in rows] == list(expected.values()), name
    return telemetry


@pytest.mark.parametrize("make", [sgd, adamw])
def test_a_plain_loop(tmp_path, make):
    telemetry = check_full(tmp_path, mlp(), make, batches(103))
    assert telemetry.histograms["grad/0.weight"].steps.tolist() == [0, 100]
    assert telemetry["grad_cosine/0.weight"].steps.tolist()[:3] == [2, 4, 6]


def test_every_step_with_clipping_accumulation_and_flushes(tmp_path, monkeypatch):
    monkeypatch.setattr("orchestrator.monitor.buffer._FLUSH_STEPS", 7)
    steps = batches(20, micro=2)
    telemetry = check_full(tmp_path, mlp(), adamw, steps, every=1, max_norm=0.3, histograms=6)
    assert telemetry["update_cosine/0.weight"].steps.tolist() == list(range(1, 20))
    assert telemetry.histograms["update/0.bias"].steps.tolist() == [0, 6, 12, 18]


def nesterov(model):
    """Torch adds the momentum to the gradients themselves, in place."""
    settings = {"lr": 0.1, "momentum": 0.9, "nesterov": True, "foreach": True}
    return [torch.optim.SGD(model.parameters(), **settings)]


def split(model):
    """Matrices and biases each have an optimizer."""
    matrices = [p for p in model.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if p.ndim == 1]
    return [torch.optim.SGD(matrices, lr=0.1), torch.optim.AdamW(others, lr=1e-3)]


@pytest.mark.parametrize("make", [nesterov, split])
def test_optimizers(tmp_path, make):
    check_full(tmp_path, mlp(), make, batches(12), every=3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_precisions(tmp_path, dtype):
    steps = [[(x.to(dtype), y) for x, y in micro] for micro in batches(12)]
    check_full(tmp_path, mlp().to(dtype), sgd, steps, every=2, rel=1e-4)


def test_experts_that_take_turns(tmp_path):
    telemetry = check_full(tmp_path, Experts(), adamw, batches(60), every=1)
    steps = telemetry["update_cosine/experts.1.weight"].steps
    assert steps.tolist()[:4] == [3, 4, 9, 10]  # without the first of its three turns
    assert telemetry.header["detached"] == telemetry.header["masked"] == ""


def test_tied_weights(tmp_path):
    telemetry = check_full(tmp_path, Tied(), adamw, tokens(20), max_norm=0.5)
    assert telemetry.header["embeddings"] == telemetry.header["sparse_embeddings"] == ""


class Reader(nn.Module):
    """An embedding under a head, of more rows than a batch has tokens; row 0 is padding."""

    def __init__(self, rows: int = 30, **how):
        super().__init__()
        self.table = nn.Embedding(rows, 4, padding_idx=0, **how)
        self.head = nn.Linear(4, 7)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.table(tokens))


class Bag(nn.Module):
    def __init__(self, **how):
        super().__init__()
        self.table = nn.EmbeddingBag(30, 4, mode="sum", **how)
        self.head = nn.Linear(4, 7)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.table(tokens[:, None]))


@pytest.mark.parametrize("kind", [Reader, Bag])
def test_of_an_embedding_the_touched_rows_count(tmp_path, kind):
    """AdamW moves all rows: by momentum, and by weight decay those that were never touched."""

    def make(model):
        return [torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.5)]

    telemetry = check_full(tmp_path, kind(), make, tokens(40), every=1, tables=["table.weight"])
    assert telemetry.header["embeddings"] == "table.weight"
    assert telemetry.header["weight_layers"] == "head.weight"
    assert 0 < telemetry["touched_rows/table.weight"].values.max() < 0.25  # of 30, 7 tokens


@pytest.mark.filterwarnings("ignore:.*[Ss]parse.*")
@pytest.mark.parametrize("kind", [Reader, Bag])
@pytest.mark.parametrize("every", [1, 10])
def test_a_sparse_embedding_has_the_same_series_but_no_cosine(tmp_path, kind, every):
    def make(model):
        dense = torch.optim.AdamW(model.head.parameters(), lr=0.01)
        return [torch.optim.SparseAdam(model.table.parameters(), lr=0.01), dense]

    model = kind(sparse=True)
    tables = ["table.weight"]
    telemetry = check_full(tmp_path, model, make, tokens(20), every=every, tables=tables)
    assert telemetry.header["embeddings"] == ""
    assert telemetry.header["sparse_embeddings"] == "table.weight"
    assert not any(f"{cosine}/table.weight" in telemetry for cosine in COSINES)


@pytest.mark.filterwarnings("ignore:.*[Ss]parse.*")
def test_of_a_sparse_embedding_no_whole_copy_is_made(tmp_path, monkeypatch):
    shapes = []
    real = torch._foreach_copy_
    monkeypatch.setattr(
        torch, "_foreach_copy_", lambda a, b: shapes.extend(t.shape for t in a) or real(a, b)
    )
    model = Reader(sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(watch(model, optimizer, folder=tmp_path), model, [optimizer], tokens(4))
    assert shapes
    assert (30, 4) not in shapes


@pytest.mark.filterwarnings("ignore:.*[Ss]parse.*")
@pytest.mark.parametrize("how", [{}, {"sparse": True}])
def test_a_closure_shows_what_is_touched_only_after_the_step(tmp_path, how):
    model = Reader(**how)
    twin = copy.deepcopy(model)
    expected = record(
        twin, sgd(twin), tokens(6), every=2, max_norm=None, level="full", tables=["table.weight"]
    )
    (optimizer,) = sgd(model)
    monitor = watch(model, optimizer, level="full", every=2, folder=tmp_path)

    def closure(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        monitor.log(train_loss=loss)
        return loss

    for ((x, y),) in tokens(6):
        optimizer.step(partial(closure, x, y))
    monitor.close()
    same(read(tmp_path), expected)


def test_an_embedding_that_nothing_touches_has_no_ratio(tmp_path):
    model = Reader()
    (optimizer,) = adamw(model)
    padding = [[(torch.zeros(5, dtype=torch.long), torch.zeros(5, dtype=torch.long))]]
    monitor = watch(model, optimizer, level="full", folder=tmp_path)
    train(monitor, model, [optimizer], padding)
    telemetry = read(tmp_path)
    assert telemetry["touched_rows/table.weight"].values.tolist() == [0]
    assert telemetry["grad_norm/table.weight"].values.tolist() == [0]
    assert "update_ratio/table.weight" not in telemetry
    assert "grad_zeros/table.weight" not in telemetry


class Broken(nn.Module):
    """One layer is cut off, one hidden behind a mask, one's output is never asked for."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(5, 5)
        self.cut = nn.Linear(5, 5, bias=False)
        self.masked = nn.Linear(5, 5, bias=False)
        self.late = nn.Linear(5, 3, bias=False)
        self.expert = nn.Linear(5, 3, bias=False)
        self.frozen = nn.Linear(5, 3).requires_grad_(False)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        hidden = self.body(x) + self.cut(x).detach() + self.masked(x) * torch.zeros(5)
        out = self.late(hidden) + self.frozen(hidden)
        return out + self.expert(hidden) if self.calls == 50 else out


def test_layers_that_do_not_learn_are_told_after_fifty_steps(tmp_path):
    model = Broken()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    monitor = watch(model, optimizer, folder=tmp_path)
    header = []
    for step, ((x, y),) in enumerate(batches(60)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if step in (48, 49):
            monitor._recorder._buffer.flush()
            header.append(read(tmp_path).header)
    monitor.close()
    assert "detached" not in header[0]
    assert header[1]["detached"] == "cut.weight"  # the expert had its turn in the last step
    assert "masked" not in header[1]
    assert read(tmp_path).header["masked"] == "masked.weight"
    assert read(tmp_path).header["frozen"] == "frozen.weight,frozen.bias"


def test_what_is_not_finite_is_counted_where_it_is(tmp_path):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    monitor = watch(model, optimizer, level="full", folder=tmp_path)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    model[0].weight.grad[0, :2] = torch.tensor([float("nan"), float("inf")])
    model[0].weight.grad[1, 0] = 3.0
    optimizer.step()
    monitor.close()
    telemetry = read(tmp_path)
    assert points(tmp_path, "grad_nonfinite/0.weight") == {0: 2}
    assert points(tmp_path, "grad_nonfinite/2.weight") == {0: 0}
    assert points(tmp_path, "grad_zeros/0.weight")[0] == pytest.approx(37 / 40)
    counted = telemetry.histograms["grad/0.weight"]
    assert (counted.zeros[0], counted.nonfinite[0], counted.counts[0].sum()) == (37, 2, 1)
    (bin,) = counted.counts[0].nonzero()[0]
    assert counted.edges[bin] <= 3 < counted.edges[bin + 1]


def test_a_step_that_is_not_sampled_keeps_only_what_the_next_one_needs(tmp_path):
    """Of two steps of ten a copy is there; nothing is left behind by the others."""
    model = mlp()
    (optimizer,) = adamw(model)
    monitor = watch(model, optimizer, level="full", folder=tmp_path)
    (probe,) = monitor._recorder._probes.values()
    held = {}
    for step, ((x, y),) in enumerate(batches(82)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        held[step] = probe._last is not None, bool(probe._before)
    monitor.close()
    assert [step for step in held if step > 60 and held[step] != (False, False)] == [69, 79]
