"""What modules put out on sampled steps, against whole outputs that plain hooks kept."""

import copy
import io
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_record import Waits, batches, fit, mlp, start
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from orchestrator import watch
from orchestrator.monitor import activations, modules
from orchestrator.telemetry import read


def kept(model, passes) -> dict[str, np.ndarray]:
    """Every element that each module without submodules puts out in `passes`, one after another."""
    outputs: dict[str, list[np.ndarray]] = {}

    def keep(name):
        def hook(_, __, output):
            output = output[0] if isinstance(output, tuple) else output
            outputs.setdefault(name, []).append(output.detach().double().numpy().ravel())

        return hook

    handles = [m.register_forward_hook(keep(name)) for name, m in model.named_modules()]
    passes(model)
    for handle in handles:
        handle.remove()
    return {name: np.concatenate(parts) for name, parts in outputs.items()}


def recorded(folder, step=0):
    """Values at a step, by quantity and module."""
    found: dict[str, dict[str, float]] = {}
    for name, series in read(folder).series.items():
        quantity, _, module = name.partition("/")
        if quantity.startswith("activation_") and step in series.steps:
            value = series.values[series.steps.tolist().index(step)]
            found.setdefault(quantity, {})[module] = float(value)
    return found


def train(model, passes, folder, steps=1, **options):
    """Steps of `passes`, which runs forward and backward."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = watch(model, optimizer, folder=folder, **options)
    for _ in range(steps):
        optimizer.zero_grad()
        passes(model)
        optimizer.step()
    monitor.close()


def check(model, passes, folder, rel=1e-4) -> dict[str, dict[str, float]]:
    whole = kept(copy.deepcopy(model), passes)
    train(model, passes, folder)
    found = recorded(folder)
    assert found["activation_mean"]
    for module in found["activation_mean"]:
        x = whole[module]
        scale = np.sqrt(np.mean(x**2))
        assert found["activation_mean"][module] == pytest.approx(x.mean(), abs=rel * scale)
        assert found["activation_std"][module] == pytest.approx(x.std(), abs=rel * scale)
        assert found["activation_zeros"][module] == pytest.approx(np.mean(x == 0))
    return found


def backward(model, *inputs):
    model(*inputs).square().mean().backward()


def test_a_perceptron(tmp_path):
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))

    def passes(m):
        torch.manual_seed(7)  # dropout's
        backward(m, torch.randn(6, 5))

    found = check(model, passes, tmp_path)
    assert list(found["activation_mean"]) == ["0", "1", "3"]
    assert 0 < found["activation_zeros"]["1"] < 1
    assert "activation_saturated" not in found


def test_a_convolutional_network(tmp_path):
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten()
    )
    check(model, lambda m: backward(m, torch.ones(2, 1, 8, 8).cumsum(2)), tmp_path)


def test_a_transformer_with_padding(tmp_path):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    padding = torch.tensor([[False] * 5, [False, False, False, True, True]])

    def passes(m):
        m(torch.ones(2, 5, 8).cumsum(1), src_key_padding_mask=padding).square().mean().backward()

    found = check(model, passes, tmp_path)
    assert [n for n in found["activation_mean"] if n.startswith("layers.1")] == [
        f"layers.1.{n}" for n in ("self_attn", "linear1", "linear2", "norm1", "norm2")
    ]


class Twice(nn.Module):
    """One module used twice, on outputs of two sizes."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.act = nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.body(self.act(self.body(x))[:1]))


def test_calls_and_micro_batches_are_pooled_by_their_elements(tmp_path):
    def passes(m):
        for rows in (2, 7):
            backward(m, torch.arange(4.0 * rows).reshape(rows, 4) / 5 - 1)

    check(Twice(), passes, tmp_path)


@pytest.mark.parametrize("is_reentrant", [False, True])
def test_checkpointed_modules_count_once(tmp_path, is_reentrant):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
            self.head = nn.Linear(4, 1)
            self.checks = False

        def forward(self, x: Tensor) -> Tensor:
            if not self.checks:
                return self.head(self.body(x))
            return self.head(checkpoint(self.body, x, use_reentrant=is_reentrant))

    def passes(m):
        for rows in (2, 3):
            backward(m, torch.arange(4.0 * rows).reshape(rows, 4).requires_grad_())

    model = Checkpointed()
    whole = kept(copy.deepcopy(model), passes)
    calls = []
    real = activations._measure
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(activations, "_measure", lambda *a: calls.append(a[0]) or real(*a))
        model.checks = True
        train(model, passes, tmp_path)
    assert sorted(calls) == [0, 0, 1, 1, 2, 2]
    for module, mean in recorded(tmp_path)["activation_mean"].items():
        assert mean == pytest.approx(whole[module].mean(), rel=1e-4)


def test_autocast_is_seen_in_its_precision(tmp_path):
    def passes(m):
        with torch.autocast("cpu", torch.bfloat16):
            backward(m, torch.linspace(-3, 3, 30).reshape(6, 5))

    check(mlp(), passes, tmp_path)


def test_half_precision_does_not_overflow(tmp_path):
    model = nn.Linear(4, 4, bias=False).half()
    nn.init.constant_(model.weight, 100.0)
    train(model, lambda m: m(torch.full((9, 4), 100.0).half()).float().sum().backward(), tmp_path)
    found = recorded(tmp_path)
    assert found["activation_mean"]["model"] == pytest.approx(4e4, rel=1e-3)
    assert found["activation_std"]["model"] < 40


@pytest.mark.parametrize(
    ("module", "share"),
    [
        (nn.Sigmoid(), lambda x: np.mean((x < 0.01) | (x > 0.99))),
        (nn.Tanh(), lambda x: np.mean(np.abs(x) > 0.98)),
        (nn.Hardtanh(-2, 3), lambda x: np.mean((x <= -2) | (x >= 3))),
        (nn.Hardsigmoid(), lambda x: np.mean((x <= 0) | (x >= 1))),
        (nn.ReLU6(), lambda x: np.mean(x >= 6)),
        (nn.Softmax(-1), lambda x: np.mean(x.reshape(-1, 50).max(1) > 0.99)),
        (nn.ReLU(), None),
        (nn.GELU(), None),
        (nn.LayerNorm(50), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_saturation_is_being_near_a_bound(tmp_path, module, share):
    model = nn.Sequential(nn.Linear(50, 50), module)
    nn.init.normal_(model[0].weight)
    inputs = torch.randn(20, 50)

    def passes(m):
        backward(m, inputs)

    whole = kept(copy.deepcopy(model), passes)["1"]
    train(model, passes, tmp_path)
    saturated = recorded(tmp_path).get("activation_saturated", {})
    if share is None:
        assert not saturated
    else:
        assert saturated["1"] == pytest.approx(share(whole))
        assert 0 < saturated["1"] < 1


def test_only_training_with_gradients_is_heard(tmp_path):
    def passes(m):
        backward(m, torch.ones(2, 5))
        with torch.no_grad():
            m(torch.full((2, 5), 100.0))
        m.eval()
        m(torch.full((2, 5), 100.0))
        m.train()

    model = mlp()
    expected = model[0](torch.ones(2, 5)).mean().item()
    train(model, passes, tmp_path)
    assert recorded(tmp_path)["activation_mean"]["0"] == pytest.approx(expected)


def test_modules_are_sampled_rarely_and_at_the_start(tmp_path):
    def steps(folder, **options):
        train(mlp(), lambda m: backward(m, torch.ones(2, 5)), folder, steps=125, **options)
        return [int(s) for s in read(folder)["activation_mean/0"].steps]

    assert steps(tmp_path / "default") == [0, 10, 30, 100]
    assert steps(tmp_path / "often", every=4) == [0, 10, 30, 40, 80, 120]
    assert steps(tmp_path / "full", level="full", every=50) == [0, 10, 30, 50, 100]
    train(mlp(), lambda m: backward(m, torch.ones(2, 5)), tmp_path / "norms", level="norms")
    assert not recorded(tmp_path / "norms")


def test_a_resumed_training_is_not_sampled_as_if_it_began(tmp_path):
    model = mlp()
    before = torch.optim.AdamW(model.parameters())
    fit(model, before, batches(95))
    optimizer = torch.optim.AdamW(model.parameters())
    monitor = watch(model, optimizer, folder=tmp_path)
    optimizer.load_state_dict(before.state_dict())
    fit(model, optimizer, batches(10))
    monitor.close()
    assert read(tmp_path)["activation_mean/0"].steps.tolist() == [100]


def test_nothing_listens_between_sampled_steps(tmp_path):
    model, optimizer, monitor = start(tmp_path)
    assert len(torch_module._global_forward_hooks) == 1
    fit(model, optimizer, batches(1))
    assert not torch_module._global_forward_hooks
    fit(model, optimizer, batches(9))
    assert len(torch_module._global_forward_hooks) == 1
    monitor.close()
    assert not torch_module._global_forward_hooks


def test_a_model_saved_or_copied_in_mid_training_is_only_itself(tmp_path):
    model, optimizer, monitor = start(tmp_path)
    plain, watched = io.BytesIO(), io.BytesIO()
    torch.save(model, watched)
    average = copy.deepcopy(model)
    average(torch.full((2, 5), 1e6))  # in training mode, with gradients
    fit(model, optimizer, batches(1))
    monitor.close()
    torch.save(average, plain)
    assert len(watched.getvalue()) == len(plain.getvalue())
    assert abs(recorded(tmp_path)["activation_mean"]["0"]) < 10


def test_replicas_of_data_parallel_are_heard_under_the_modules_name(tmp_path):
    """What nn.DataParallel makes of each module for each of several GPUs."""

    def passes(m):
        for rows in (1, 3):
            replicas = [part._replicate_for_data_parallel() for part in m]
            x = torch.ones(rows, 5)
            for replica, original in zip(replicas, m, strict=True):
                replica._parameters = original._parameters
                x = replica(x)
            x.sum().backward()

    model = mlp()
    expected = model[0](torch.ones(1, 5)).mean().item()
    train(model, passes, tmp_path)
    assert recorded(tmp_path)["activation_mean"]["0"] == pytest.approx(expected)


@dataclass
class Answer:
    note: str
    loss: Tensor
    logits: Tensor


def test_the_first_floating_tensor_of_nested_outputs_counts():
    x, scalar = torch.ones(2, 3), torch.tensor(1.0)
    for output in (x, (x, scalar), [None, (scalar, x)], {"loss": scalar, "x": x}):
        assert modules.first_floating(output) is x
    assert modules.first_floating(Answer("", scalar, x)) is x


@pytest.mark.filterwarnings("ignore::UserWarning")  # quantised tensors are on their way out
def test_other_outputs_are_ignored():
    x = torch.ones(2, 3)
    quantised = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    for output in (None, 3, "x", x.long(), x * 1j, x.to_sparse(), quantised, x[:0], x.sum()):
        assert modules.first_floating(output) is None
    assert modules.first_floating(x.to(torch.float8_e4m3fn)) is None
    assert modules.first_floating(nn.Parameter(x)) is None  # a subclass
    torch.func.grad(lambda y: [y.sum(), modules.first_floating(y)].pop(0))(x)
    inside = []
    torch.func.grad(lambda y: inside.append(modules.first_floating(y)) or y.sum())(x)
    assert inside == [None]


@pytest.mark.filterwarnings("ignore:.*script.*:DeprecationWarning")
def test_which_modules_are_watched():
    shared = nn.Tanh()
    model = nn.Sequential(
        parametrizations.weight_norm(nn.Linear(3, 3)),
        shared,
        nn.Sequential(),
        nn.Identity(),
        nn.Sequential(nn.Linear(3, 3), shared, nn.Dropout(0.1)),
        torch.jit.script(nn.Linear(3, 3)),
        nn.MultiheadAttention(4, 2),
        nn.CrossEntropyLoss(),
    )
    assert list(modules.watched_modules(model)) == ["0", "1", "4.0", "6"]
    assert list(modules.watched_modules(nn.DataParallel(model))) == ["0", "1", "4.0", "6"]
    assert list(modules.watched_modules(nn.Linear(2, 2))) == ["model"]


def test_of_very_many_modules_whole_blocks_are_watched():
    block = nn.Sequential(nn.Linear(1, 1), nn.LayerNorm(1), nn.GELU())
    model = nn.ModuleDict(
        {"stem": nn.Linear(1, 1), "blocks": nn.ModuleList(copy.deepcopy(block) for _ in range(80))}
    )
    names = list(modules.watched_modules(model))
    assert names == ["stem", *(f"blocks.{i}.{j}" for i in range(0, 80, 3) for j in range(3))]


def test_a_loop_over_time_is_bounded(tmp_path):
    model = nn.Linear(3, 3)

    def passes(m):
        sum(m(torch.full((1, 3), float(i < 64))) for i in range(200)).sum().backward()

    expected = model(torch.ones(1, 3)).mean().item()
    train(model, passes, tmp_path)
    assert recorded(tmp_path)["activation_mean"]["model"] == pytest.approx(expected)


def test_nothing_waits_for_the_device_while_modules_are_heard(tmp_path):
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3), nn.Softmax(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = watch(model, optimizer, level="full", every=1, folder=tmp_path)
    with Waits() as waits:
        fit(model, optimizer, batches(20))
    assert waits.count == 0
    monitor.close()
    assert len(read(tmp_path)["activation_saturated/3"]) == 20


def test_an_error_while_modules_are_heard_is_not_the_trainings(tmp_path, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("no such luck")

    model, optimizer, monitor = start(tmp_path)
    monkeypatch.setattr(activations, "_measure", broken)
    fit(model, optimizer, batches(3))
    monitor.close()
    assert len(caplog.records) == 1
    assert read(tmp_path).header["recording_stopped"] == "RuntimeError: no such luck"
    assert not torch_module._global_forward_hooks


def compiled(count):
    def backend(graph, _):
        count.append(1)
        return graph.forward

    return lambda model: torch.compile(model, backend=backend, fullgraph=True)


@pytest.mark.parametrize("watches_compiled", [True, False])
def test_a_compiled_model_is_compiled_once_and_not_heard(tmp_path, watches_compiled):
    graphs: list[int] = []
    model = mlp()
    fast = compiled(graphs)(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = watch(fast if watches_compiled else model, optimizer, every=1, folder=tmp_path)
    fit(fast, optimizer, batches(15))
    monitor.close()
    assert len(graphs) == 1
    assert not recorded(tmp_path)
    assert read(tmp_path).header["activations"] == "not recorded: torch.compile"


def test_a_model_compiled_while_it_is_watched_is_compiled_twice_at_most(tmp_path):
    graphs: list[int] = []
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = watch(model, optimizer, every=1, folder=tmp_path)
    fit(compiled(graphs)(model), optimizer, batches(15))
    monitor.close()
    assert len(graphs) <= 2
    assert read(tmp_path).header["activations"] == "not recorded: torch.compile"


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    calls=st.integers(1, 3),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]),
    is_transposed=st.booleans(),
)
def test_any_shape_is_measured(shape, calls, dtype, is_transposed):
    torch.manual_seed(math.prod(shape))
    outputs = [torch.randn(shape).relu().to(dtype) for _ in range(calls)]
    given_out = [x.transpose(0, -1) if is_transposed else x for x in outputs]
    heard = activations.Heard(
        ("act",), tuple(activations._measure(0, nn.ReLU(), x) for x in given_out)
    )
    steps, quantities = activations.columns([(7, heard)], float)
    whole = torch.stack(outputs).double()
    assert steps.tolist() == [7]
    values = {name: column.tolist()[0][0] for name, column in quantities.items()}
    assert values == {
        "activation_mean": pytest.approx(whole.mean().item(), rel=1e-5, abs=1e-6),
        "activation_std": pytest.approx(whole.std(correction=0).item(), rel=1e-3, abs=1e-3),
        "activation_zeros": pytest.approx((whole == 0).double().mean().item(), abs=1e-6),
        "activation_saturated": None,
    }


@pytest.mark.parametrize(("sizes", "told"), [([1, 1], "1"), ([2, 1], ""), ([1, 2], ""), ([2], "")])
def test_batch_normalisation_that_has_only_single_examples_is_told(tmp_path, sizes, told):
    model = nn.Sequential(nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(12, 2))

    def micro_batches(m):
        for size in sizes:
            m(torch.randn(size, 1, 5)).sum().backward()

    train(model, micro_batches, tmp_path)
    assert read(tmp_path).header["batch_norm_of_one"] == told


def test_batch_normalisation_that_is_frozen_takes_no_statistics(tmp_path):
    model = nn.Sequential(nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(12, 2))
    model[1].eval()
    train(model, lambda m: m(torch.randn(1, 1, 5)).sum().backward(), tmp_path)
    assert "batch_norm_of_one" not in read(tmp_path).header
