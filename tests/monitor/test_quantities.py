"""Every recorded quantity against tests/monitor/plain_record.py."""

import copy
from functools import partial

import pytest
import torch
from plain_record import Series, Steps, batches, mlp, record
from torch import Tensor, nn

from orchestrator import watch
from orchestrator.nouns import Telemetry
from orchestrator.telemetry import read


def train(monitor, model, optimizers, steps: Steps, max_norm=None, loss_of=None) -> None:
    loss_of = loss_of or (lambda m, x, y: nn.functional.cross_entropy(m(x), y))
    for micro in steps:
        model.zero_grad()
        for x, y in micro:
            loss = loss_of(model, x, y)
            (loss / len(micro)).backward()
            monitor.log(train_loss=loss)
        if max_norm is not None:
            monitor.clip_grad_norm_(max_norm)
        for optimizer in optimizers:
            optimizer.step()
    monitor.close()


def same(telemetry: Telemetry, expected: Series, rel: float = 1e-5) -> None:
    found = {
        name: dict(zip(s.steps.tolist(), s.values.tolist(), strict=True))
        for name, s in telemetry.series.items()
        if name != "step_seconds" and not name.startswith("activation_")
    }
    assert found.keys() == expected.keys()
    for name, points in expected.items():
        near = 1e-6 if "_cosine/" in name else 1e-12  # of vectors that may cancel to nothing
        assert found[name] == pytest.approx(points, rel=rel, abs=near), name


def check(folder, model, make, steps, *, max_norm=None, loss_of=None, rel=1e-5, tables=(), **how):
    """Train a copy without a monitor; telemetry and weights must be the same."""
    twin = copy.deepcopy(model)
    optimizers, twins = make(model), make(twin)
    how = {"every": 10, **how}
    clipping = {"max_norm": max_norm, "loss_of": loss_of}
    expected = record(twin, twins, steps, **clipping, tables=tables, **how)
    monitor = watch(model, optimizers, folder=folder, **how)
    train(monitor, model, optimizers, steps, max_norm, loss_of)
    same(read(folder), expected, rel)
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    return read(folder)


def sgd(model):
    return [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)]


def adamw(model):
    return [torch.optim.AdamW(model.parameters(), lr=1e-2)]


@pytest.mark.parametrize("make", [sgd, adamw])
@pytest.mark.parametrize("every", [1, 10])
def test_a_plain_loop(tmp_path, make, every):
    telemetry = check(tmp_path, mlp(), make, batches(85), every=every)
    assert telemetry.header["grad_norm_seen"] == "optimizer"
    assert telemetry.header["steps"] == 85


@pytest.mark.parametrize("micro", [1, 3])
def test_clipping_and_accumulation(tmp_path, micro):
    telemetry = check(tmp_path, mlp(), sgd, batches(70, micro), max_norm=0.3)
    assert telemetry.header["grad_norm_seen"] == "unclipped"
    coefficients = telemetry["clip_coefficient"].values
    assert 0 < (coefficients < 1).mean() < 1


def test_many_flushes_are_one_record(tmp_path, monkeypatch):
    monkeypatch.setattr("orchestrator.monitor.buffer._FLUSH_STEPS", 7)
    check(tmp_path, mlp(), adamw, batches(85, 2), max_norm=0.3)


def test_double_precision(tmp_path):
    steps = [[(x.double(), y) for x, y in micro] for micro in batches(10)]
    check(tmp_path, mlp().double(), adamw, steps, max_norm=0.3)


def test_norms_of_half_precision_are_summed_in_single(tmp_path):
    steps = [[(x.bfloat16(), y) for x, y in micro] for micro in batches(30)]
    telemetry = check(tmp_path, mlp().bfloat16(), sgd, steps, rel=1e-4)
    assert telemetry.header["precision"] == "bfloat16"


def test_a_norm_that_half_precision_cannot_hold_is_recorded(tmp_path):
    model = nn.Linear(4, 1, bias=False).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    monitor = watch(model, optimizer, folder=tmp_path)
    model.weight.grad = torch.full_like(model.weight, 6e4)
    optimizer.step()
    monitor.close()
    assert read(tmp_path)["grad_norm"].values[0] == pytest.approx(1.2e5, rel=1e-3)


def test_parameters_of_several_precisions(tmp_path):
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.low = nn.Linear(5, 8).bfloat16()
            self.high = nn.Linear(8, 3).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.high(self.low(x.bfloat16()).double())

    telemetry = check(tmp_path, Mixed(), sgd, batches(10), rel=1e-4)
    assert telemetry.header["precision"] == "bfloat16, float64"


class Tied(nn.Module):
    """The embedding's weight is the head's."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.table(tokens)))


def tokens(steps: int) -> Steps:
    rng = torch.Generator().manual_seed(3)
    return [
        [(torch.randint(7, (9,), generator=rng), torch.randint(7, (9,), generator=rng))]
        for _ in range(steps)
    ]


def test_tied_weights_are_one_layer(tmp_path):
    telemetry = check(tmp_path, Tied(), adamw, tokens(20), max_norm=0.5)
    assert list(telemetry.layers("update_ratio")) == ["table.weight"]
    assert telemetry.header["parameters"] == 28
    assert telemetry.header["weight_layers"] == "table.weight"  # as a head, every row of it moves


@pytest.mark.filterwarnings("ignore:.*[Ss]parse.*")
def test_sparse_gradients(tmp_path):
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(50, 4, sparse=True)
            self.head = nn.Linear(4, 7)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.table(tokens))

    def make(model):
        return [torch.optim.SGD(model.parameters(), lr=0.1)]

    telemetry = check(tmp_path, Bag(), make, tokens(20), tables=["table.weight"])
    assert telemetry.header["weight_layers"] == "head.weight"


class Experts(nn.Module):
    """Only the expert that a batch asks for gets a gradient."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(5, 3) for _ in range(2))
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.experts[self.calls // 3 % 2](x)


def test_a_layer_without_a_gradient_has_no_update(tmp_path):
    telemetry = check(tmp_path, Experts(), adamw, batches(20))
    seen = telemetry["update_ratio/experts.1.weight"].steps
    assert 0 < len(seen) < len(telemetry["param_norm/experts.1.weight"])


def test_two_optimizers_make_one_step(tmp_path):
    def make(model):
        matrices = [p for p in model.parameters() if p.ndim == 2]
        others = [{"params": [p]} for p in model.parameters() if p.ndim == 1]
        return [torch.optim.SGD(matrices, lr=0.1), torch.optim.AdamW(others, lr=1e-3)]

    telemetry = check(tmp_path, mlp(), make, batches(70))
    assert telemetry.header["optimizer"] == "SGD, AdamW"
    assert {"lr", "lr/1", "lr/2"} <= telemetry.series.keys()


def test_two_optimizers_behind_one_clip(tmp_path):
    def make(model):
        first, _, last = model
        return [torch.optim.SGD(m.parameters(), lr=0.1) for m in (first, last)]

    check(tmp_path, mlp(), make, batches(20), max_norm=0.3)


def test_optimizers_that_step_at_different_rates(tmp_path):
    model = mlp()
    first, second = (torch.optim.SGD(model[i].parameters(), lr=0.1) for i in (0, 2))
    monitor = watch(model, [first, second], folder=tmp_path)
    for ((x, y),) in batches(12):
        nn.functional.cross_entropy(model(x), y).backward()
        first.step()
        first.step()
        second.step()
    monitor.close()
    telemetry = read(tmp_path)
    assert telemetry.header["steps"] == 24
    assert telemetry["update_ratio/0.weight"].steps.tolist() == list(range(0, 24, 2))
    assert "update_ratio/2.weight" not in telemetry  # it steps in the odd ones


def test_a_parameter_of_the_optimizer_that_the_model_lacks_counts_in_the_total(tmp_path):
    model, temperature = mlp(), nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([*model.parameters(), temperature], lr=0.1)
    monitor = watch(model, optimizer, folder=tmp_path)
    ((x, y),) = batches(1)[0]
    nn.functional.cross_entropy(model(x) * temperature, y).backward()
    expected = torch.nn.utils.get_total_norm([p.grad for p in [*model.parameters(), temperature]])
    optimizer.step()
    monitor.close()
    assert read(tmp_path)["grad_norm"].values == pytest.approx([float(expected)])


def test_a_closure_makes_its_gradients_within_the_step(tmp_path):
    """As in Lightning, where clipping happens in there too."""
    model = mlp()
    twin = copy.deepcopy(model)
    expected = record(twin, sgd(twin), batches(12), every=10, max_norm=0.3)
    (optimizer,) = sgd(model)
    monitor = watch(model, optimizer, folder=tmp_path)

    def closure(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        monitor.clip_grad_norm_(0.3)
        monitor.log(train_loss=loss)
        return loss

    for ((x, y),) in batches(12):
        optimizer.step(partial(closure, x, y))
    monitor.close()
    same(read(tmp_path), expected)


def test_a_closure_without_clipping_is_seen_after_the_step(tmp_path):
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
    monitor = watch(model, optimizer, folder=tmp_path)
    totals = []

    def closure(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    for ((x, y),) in batches(4):
        optimizer.step(partial(closure, x, y))
        totals.append(float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])))
    monitor.close()
    assert read(tmp_path)["grad_norm"].values == pytest.approx(totals)


class Scaler:
    """What GradScaler does around a step, on the CPU: unscale, skip when something overflowed."""

    def __init__(self, scale: float):
        self.scale = scale

    def unscale_(self, optimizer) -> None:
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad /= self.scale

    def step(self, optimizer) -> None:
        gradients = [p.grad for g in optimizer.param_groups for p in g["params"]]
        if all(g.isfinite().all() for g in gradients):
            optimizer.step()


def test_a_skipped_step_is_no_step(tmp_path):
    model = mlp()
    twin = copy.deepcopy(model)
    steps = batches(30)
    expected = record(twin, sgd(twin), steps, every=10, max_norm=0.3)
    (optimizer,) = sgd(model)
    monitor, scaler = watch(model, optimizer, folder=tmp_path), Scaler(2.0**10)
    for i, ((x, y),) in enumerate(steps):
        for overflows in [True, True, False] if i in (0, 7) else [False]:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            (loss * scaler.scale * (float("inf") if overflows else 1)).backward()
            monitor.log(train_loss=loss)
            scaler.unscale_(optimizer)
            monitor.clip_grad_norm_(0.3)
            scaler.step(optimizer)
    monitor.close()
    expected["micro_batches"] |= {0: 3, 7: 3}  # a scaler that `watch` was not told of
    same(read(tmp_path), expected, rel=1e-4)


def test_recording_without_clipping_leaves_gradients_alone(tmp_path):
    model = mlp()
    (optimizer,) = sgd(model)
    monitor = watch(model, optimizer, folder=tmp_path)
    for limit in (None, float("inf")):
        for p in model.parameters():
            p.grad = torch.full_like(p, float("inf"))
        assert monitor.clip_grad_norm_(limit) == float("inf")
        assert all(torch.isinf(p.grad).all() for p in model.parameters())  # torch makes them NaN
        optimizer.step()
    monitor.close()
    telemetry = read(tmp_path)
    assert telemetry["clip_coefficient"].values.tolist() == [1, 1]
    assert telemetry["max_norm"].values.tolist() == [float("inf")] * 2
    assert telemetry["grad_norm"].values.tolist() == [float("inf")] * 2


def test_clipping_now_and_then_is_called_mixed(tmp_path):
    model = mlp()
    (optimizer,) = sgd(model)
    monitor = watch(model, optimizer, folder=tmp_path)
    for i, ((x, y),) in enumerate(batches(4)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        if i % 2:
            monitor.clip_grad_norm_(1.0)
        optimizer.step()
    monitor.close()
    telemetry = read(tmp_path)
    assert telemetry.header["grad_norm_seen"] == "mixed"
    assert telemetry["clip_coefficient"].steps.tolist() == [1, 3]
    assert len(telemetry["grad_norm"]) == 4


def test_zero_initialised_layers_have_an_infinite_first_ratio(tmp_path):
    model = mlp()
    nn.init.zeros_(model[2].weight)
    (optimizer,) = sgd(model)
    monitor = watch(model, optimizer, folder=tmp_path)
    train(monitor, model, [optimizer], batches(3))
    ratio = read(tmp_path)["update_ratio/2.weight"].values
    assert ratio[0] == float("inf")
    assert 0 < ratio[1] < float("inf")


def test_schedules_are_seen_at_the_step_they_ruled(tmp_path):
    model = mlp()
    (optimizer,) = sgd(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    monitor = watch(model, optimizer, folder=tmp_path)
    for ((x, y),) in batches(4):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        schedule.step()
    monitor.close()
    assert read(tmp_path)["lr"].values == pytest.approx([0.1, 0.05, 0.1 / 3, 0.025])


def test_a_learning_rate_on_the_device_is_read_at_the_flush(tmp_path):
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.25), foreach=False)
    monitor = watch(model, optimizer, folder=tmp_path)
    for ((x, y),) in batches(2):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"].mul_(0.5)
    monitor.close()
    assert read(tmp_path)["lr"].values.tolist() == [0.25, 0.125]


def test_layers_may_thaw_and_groups_may_come_in_mid_training(tmp_path):
    model = mlp()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    monitor = watch(model, optimizer, folder=tmp_path)
    for i, ((x, y),) in enumerate(batches(8)):
        if i == 4:
            model[0].requires_grad_(True)
            optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.01})
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    monitor.close()
    telemetry = read(tmp_path)
    assert telemetry.header["frozen"] == "0.weight,0.bias"
    assert telemetry["update_ratio/0.weight"].steps.tolist() == [4, 6]
    assert telemetry["update_ratio/2.weight"].steps.tolist() == [0, 2, 4, 6]
    assert telemetry["lr/1"].steps.tolist() == [4, 5, 6, 7]
    assert list(telemetry.layers("update_ratio"))[-1] == "0.bias"


def test_the_first_steps_are_sampled_more_often(tmp_path):
    model = mlp()
    (optimizer,) = sgd(model)
    monitor = watch(model, optimizer, every=25, folder=tmp_path)
    train(monitor, model, [optimizer], batches(110))
    steps = read(tmp_path)["update_ratio/0.weight"].steps.tolist()
    assert steps == [*range(0, 60, 2), 75, 100]


def test_step_times_are_on_the_hosts_clock(tmp_path, monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(
        "orchestrator.monitor.recorder.time.perf_counter", lambda: float(next(clock))
    )
    monkeypatch.setattr("orchestrator.monitor.buffer._FLUSH_SECONDS", 1e9)
    model = mlp()
    (optimizer,) = sgd(model)
    monitor = watch(model, optimizer, folder=tmp_path)
    for ((x, y),) in batches(4):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    monitor.close()
    seconds = read(tmp_path)["step_seconds"]
    assert seconds.steps.tolist() == [1, 2, 3]
    assert seconds.values.tolist() == [1, 1, 1]
