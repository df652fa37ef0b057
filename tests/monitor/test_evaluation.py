"""What is seen on a probe set, against slow derivations; and that the training does not notice."""

import copy
import math
import random
from collections import UserDict
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_record import Waits, batches, fit, mlp, points, start
from torch import Tensor, nn

from orchestrator import watch
from orchestrator.monitor import logits as logits_room
from orchestrator.telemetry import read, read_metrics


def probed(model, folder, *probe, level="default", **options):
    """Telemetry of a training that has made no step when it is probed."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = watch(model, optimizer, level=level, folder=folder)
    monitor.probe(*probe, **options)
    monitor.close()
    return read(folder)


def values(telemetry):
    return {name: float(series.values[-1]) for name, series in telemetry.series.items()}


def dead(telemetry):
    return {name: float(s.values[-1]) for name, s in telemetry.layers("dead_units").items()}


def by_hand(rows, targets) -> dict[str, float]:
    """Plain Python over rows of logits whose target counts."""
    counted = [
        (np.array(row, dtype=np.float64), target)
        for row, target in zip(rows.tolist(), targets.tolist(), strict=True)
        if target != -100
    ]
    found: dict[str, list[float]] = {}
    for row, target in counted:
        z = np.exp(row).sum()
        p = np.exp(row) / z
        for name, value in {
            "probe/accuracy": row.argmax() == target,
            "logit_spread": row.max() - row.min(),
            "logit_variance": row.var(),
            "entropy": -(p * np.log(p)).sum() / math.log(len(row)),
            "log_z": math.log(z),
        }.items():
            found.setdefault(name, []).append(float(value))
    return {name: float(np.mean(each)) for name, each in found.items()}


X, Y = torch.linspace(-2, 2, 60).reshape(12, 5).sin(), torch.arange(12) % 3


def test_a_classification(tmp_path):
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    expected = by_hand(copy.deepcopy(model).eval()(X).detach(), Y)
    loss = F.cross_entropy(copy.deepcopy(model).eval()(X), Y)
    telemetry = probed(model, tmp_path, X, Y, loss=F.cross_entropy)
    found = values(telemetry)
    assert found["probe/loss"] == loss  # to the bit
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-5), name
        assert telemetry[name].steps.tolist() == [0]
    assert found["eval_inconsistency"] == 0
    assert telemetry.header["logit_classes"] == 3
    assert telemetry.header["outputs_are_probabilities"] is False
    assert read_metrics(tmp_path).keys() == {"probe/loss", "probe/accuracy"}


@pytest.mark.parametrize("is_loader", [False, True])
def test_batches_are_one_set(tmp_path, is_loader):
    whole = probed(copy.deepcopy(model := mlp()), tmp_path / "whole", X, Y, loss=F.cross_entropy)
    parts = [(X[:7], Y[:7]), [X[7:], Y[7:]]]
    if is_loader:
        data = torch.utils.data.TensorDataset(X, Y)
        parts = torch.utils.data.DataLoader(data, batch_size=5)
    batched = probed(model, tmp_path / "batched", parts, loss=F.cross_entropy)
    assert values(batched) == pytest.approx(values(whole), rel=1e-5)
    assert batched.header["logit_classes"] == 3


def test_a_sequence_model_with_padding(tmp_path):
    """Logits [batch, time, K]; what is padded has the target that cross-entropy ignores."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.Sequential(
        nn.Embedding(11, 8),
        nn.TransformerEncoder(layer, 1, enable_nested_tensor=False),
        nn.Linear(8, 11),
    )
    tokens = torch.arange(20).reshape(4, 5) % 11
    targets = (tokens + 1) % 11
    targets[0, 3:] = targets[2, 1:] = -100

    def loss(output, target):
        return F.cross_entropy(output.flatten(0, 1), target.flatten())

    plain = copy.deepcopy(model).eval()
    expected = by_hand(plain(tokens).detach().flatten(0, 1), targets.flatten())
    expected["probe/loss"] = loss(plain(tokens), targets).item()
    parts = [(tokens[:3], targets[:3]), (tokens[3:], targets[3:])]
    telemetry = probed(model, tmp_path, parts, loss=loss)
    for name, value in expected.items():
        assert values(telemetry)[name] == pytest.approx(value, rel=1e-4), name
    assert telemetry.header["logit_classes"] == 11


def test_an_image_of_classes_has_them_in_its_channels(tmp_path):
    model = nn.Conv2d(2, 4, 1)
    images, targets = torch.randn(3, 2, 5, 6), torch.randint(4, (3, 5, 6))
    rows = copy.deepcopy(model)(images).detach().permute(0, 2, 3, 1).reshape(-1, 4)
    found = values(probed(model, tmp_path, images, targets, loss=F.cross_entropy))
    for name, value in by_hand(rows, targets.flatten()).items():
        assert found[name] == pytest.approx(value, rel=1e-4), name


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_regression_has_a_loss_and_units_and_no_logits(tmp_path, outputs):
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, outputs))
    telemetry = probed(model, tmp_path, X, torch.zeros(12, outputs), loss=F.mse_loss)
    assert set(telemetry.series) == {"probe/loss", "dead_units/1", "eval_inconsistency"}
    assert not {"logit_classes", "outputs_are_probabilities"} & telemetry.header.keys()


@dataclass
class Output:
    loss: Tensor | None
    logits: Tensor


class Keywords(nn.Module):
    """Called as Hugging Face's models are."""

    def __init__(self, of_tokens: bool = False):
        super().__init__()
        self.table, self.head = nn.Embedding(9, 4), nn.Linear(4, 9)
        self.of_tokens = of_tokens

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Output:
        logits = self.head(self.table(input_ids))
        logits = logits if self.of_tokens else logits[:, 0]
        loss = None if labels is None else F.cross_entropy(logits.flatten(0, -2), labels.flatten())
        return Output(loss, logits)


@pytest.mark.parametrize("of_tokens", [False, True])
def test_a_mapping_is_the_models_keywords_and_its_labels_are_the_targets(tmp_path, of_tokens):
    model = Keywords(of_tokens)
    ids = torch.arange(12).reshape(4, 3) % 9
    labels = ids if of_tokens else ids[:, 0]
    batch = UserDict({"input_ids": ids, "labels": labels})
    output = copy.deepcopy(model)(**batch)
    found = values(probed(model, tmp_path, batch))
    expected = by_hand(output.logits.detach().flatten(0, -2), labels.flatten())
    accuracy = expected.pop("probe/accuracy")
    assert found["probe/loss"] == output.loss
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-4), name
    # Of labels of a sequence nobody but the model knows whether it shifts them.
    assert found.get("probe/accuracy") == (None if of_tokens else pytest.approx(accuracy))


def test_several_arguments(tmp_path):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(5, 3)

        def forward(self, x: Tensor, scale: float) -> Tensor:
            return self.body(x) * scale

    model = Two()
    one = values(probed(copy.deepcopy(model), tmp_path / "1", (X, 2.0), Y, loss=F.cross_entropy))
    more = values(probed(model, tmp_path / "2", [(X, 2.0, Y)], loss=F.cross_entropy))
    assert one == more
    assert one["logit_spread"] > 0


# --- dead units -------------------------------------------------------------------------------


class Functions(nn.Module):
    """Every activation is a function, or one module used twice."""

    def __init__(self, function):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.function(self.second(self.function(self.first(x)))))


def kill(layer: nn.Module, units: int) -> None:
    with torch.no_grad():
        layer.weight[:units] = 0
        layer.bias[:units] = -20.0


def test_units_that_are_zero_over_the_whole_pass_are_dead(tmp_path):
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    kill(model[0], 3)
    zeros = torch.zeros(4, 5)
    with torch.no_grad():
        model[0].bias[3:] = -0.1
    never = (F.relu(model[0](X)) == 0).all(0).float().mean().item()
    telemetry = probed(model, tmp_path, [(zeros, Y[:4]), (X, Y)])
    assert dead(telemetry) == {"1": pytest.approx(never)}
    assert 3 / 8 <= never < 1


def test_functions_show_where_their_units_are_read(tmp_path):
    model = Functions(F.relu)
    with torch.no_grad():
        model.first.bias.fill_(5.0)
        model.second.bias.fill_(5.0)
    kill(model.second, 2)
    kill(model.first, 4)
    zero_pixels = torch.cat([torch.zeros(12, 1), X[:, 1:]], 1)  # data, and no unit
    assert dead(probed(model, tmp_path, zero_pixels)) == {"second": 0.5, "head": 0.25}


def test_one_activation_module_used_twice_has_the_units_of_both_places(tmp_path):
    model = Functions(nn.ReLU())
    with torch.no_grad():
        model.first.bias.fill_(5.0)
        model.second.bias.fill_(5.0)
    kill(model.first, 8)
    assert dead(probed(model, tmp_path, X)) == {"function": 0.5}


def test_a_unit_of_a_convolution_is_a_channel(tmp_path):
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 4, 1),
        nn.Flatten(),
        nn.Linear(16, 10),
        nn.ReLU(),
    )
    with torch.no_grad():
        model[1].bias.fill_(5.0)
    kill(model[1], 2)
    kill(model[5], 5)
    found = dead(probed(model, tmp_path, torch.randn(6, 1, 4, 4).abs()))
    assert found["2"] == pytest.approx(0.25)
    assert found["6"] >= 0.5
    assert found["5"] == 0  # what the second convolution put out


def test_a_transformer_layer_with_functions_and_padding(tmp_path):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2)
    kill(model.layers[1].linear1, 12)
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[0, 2:] = True
    batch = {"src": torch.randn(3, 5, 8), "src_key_padding_mask": padding}
    found = dead(probed(model, tmp_path, batch))
    assert 0.75 <= found["layers.1.linear2"] < 1
    assert found["layers.0.linear2"] < 0.5


def test_smooth_activations_have_no_dead_units(tmp_path):
    model = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 8), nn.Softmax(1))
    assert dead(probed(model, tmp_path, X)) == {"1": 0}


# --- checks of the evaluation itself ----------------------------------------------------------


def test_outputs_that_are_probabilities_already_are_told(tmp_path):
    model = nn.Sequential(nn.Linear(5, 3), nn.Softmax(1))
    assert probed(model, tmp_path / "a", X, Y).header["outputs_are_probabilities"] is True
    with torch.autocast("cpu", torch.bfloat16):
        telemetry = probed(model, tmp_path / "b", X, Y, loss=F.cross_entropy)
    assert telemetry.header["outputs_are_probabilities"] is True
    with torch.autocast("cpu", torch.bfloat16):
        half = probed(model[0], tmp_path / "c", X, Y)
    whole = probed(model[0], tmp_path / "d", X, Y)
    assert half.header["outputs_are_probabilities"] is False
    assert values(half)["log_z"] == pytest.approx(values(whole)["log_z"], rel=1e-2)


class AlwaysDrops(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.body(x))  # `training=self.training` forgotten


def test_passes_that_differ_are_told_once(tmp_path):
    model = AlwaysDrops()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = watch(model, optimizer, folder=tmp_path)
    for _ in range(2):
        monitor.probe(X, Y)
        fit(model, optimizer, batches(1))
    monitor.close()
    inconsistency = read(tmp_path)["eval_inconsistency"]
    assert inconsistency.steps.tolist() == [0]
    assert inconsistency.values[0] > 0.5
    assert read(tmp_path)["entropy"].steps.tolist() == [0, 1]


# --- the training does not notice -------------------------------------------------------------


class Stubborn(nn.BatchNorm1d):
    """Normalises by the batch, whatever mode it is in."""

    def forward(self, x: Tensor) -> Tensor:
        self.train()
        self.register_buffer("last", x.mean(0))
        return super().forward(x)


def state(model):
    return {
        "modes": [m.training for m in model.modules()],
        "tensors": [t.clone() for t in (*model.parameters(), *model.buffers())],
        "buffers": [id(t) for t in model.buffers()],
        "gradients": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state()[1].tolist(),
        "python": random.getstate(),
        "fast": torch.backends.mha.get_fastpath_enabled(),
        "hooks": len(nn.modules.module._global_forward_hooks),
    }


def same(first, second):
    assert first.keys() == second.keys()
    for name in first:
        ours, theirs = first[name], second[name]
        if name in ("tensors", "gradients"):
            assert all(map(torch.equal, ours, theirs)), name
        elif name == "torch":
            assert torch.equal(ours, theirs)
        else:
            assert ours == theirs, name


@pytest.mark.parametrize("fails", [False, True])
def test_all_is_as_before(tmp_path, fails):
    model = nn.Sequential(
        nn.Linear(5, 8), Stubborn(8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 3)
    )
    model[1].register_buffer("last", torch.zeros(8))
    model[5].register_buffer("fixed", torch.ones(1).expand(3))
    model[2].eval()  # frozen
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = watch(model, optimizer, folder=tmp_path)
    fit(model, optimizer, batches(2))
    waiting = F.cross_entropy(model(X), Y)  # its graph holds on to buffers
    before = state(model)

    def loss(output, target):
        random.random(), np.random.rand(), torch.rand(1)
        if fails:
            raise RuntimeError("no such luck")
        return F.cross_entropy(output, target)

    monitor.probe(X, Y, loss=loss)
    same(before, state(model))
    waiting.backward()
    monitor.close()
    assert ("probe/loss" in read(tmp_path)) is not fails


@pytest.mark.parametrize("level", ["norms", "full"])
def test_weights_and_random_numbers_are_the_same_bit_for_bit(tmp_path, level):
    results = []
    for probes in (False, True):
        torch.manual_seed(5)
        model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        monitor = watch(model, optimizer, level=level, folder=tmp_path) if probes else None
        data = torch.utils.data.TensorDataset(X, Y)
        loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
        fit(model, optimizer, batches(30), lambda _, __, m=monitor, d=loader: m and m.probe(d))
        if monitor:
            monitor.close()
        results.append([*model.parameters(), *model.buffers(), torch.get_rng_state()])
    for plain, watched in zip(*results, strict=True):
        assert torch.equal(plain, watched)


def test_nothing_waits_for_the_device(tmp_path):
    model, optimizer, monitor = start(tmp_path)
    fit(model, optimizer, batches(1))
    with Waits() as waits:
        monitor.probe([(X[:6], Y[:6]), (X[6:], Y[6:])], loss=F.cross_entropy)
    assert waits.count == 0
    monitor.close()
    assert points(tmp_path, "probe/loss").keys() == {1}


def test_a_compiled_model_is_seen_as_the_plain_one_and_not_compiled_again(tmp_path):
    graphs = []
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    plain = probed(copy.deepcopy(model), tmp_path / "plain", X, Y, loss=F.cross_entropy)
    fast = torch.compile(model, backend=lambda graph, _: graphs.append(1) or graph.forward)
    fast(X)
    in_place = copy.deepcopy(model)
    in_place.compile(backend="eager", fullgraph=True)
    for name, compiled in (("wrapped", fast), ("in place", in_place)):
        telemetry = probed(compiled, tmp_path / name, X, Y, loss=F.cross_entropy)
        assert values(telemetry) == pytest.approx(values(plain), rel=1e-6)
    fast(X)
    assert len(graphs) == 1


def test_outside_a_campaign_the_model_is_not_run():
    model, _, monitor = start()
    model.register_forward_hook(lambda *_: pytest.fail("was run"))
    monitor.probe(X, Y, loss=F.cross_entropy)


def test_below_the_default_level_only_metrics_are_recorded(tmp_path):
    telemetry = probed(mlp(), tmp_path, X, Y, loss=F.cross_entropy, level="off")
    assert set(telemetry.series) == {"probe/loss", "probe/accuracy"}


# --- mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("recording", [False, True])
@pytest.mark.parametrize(
    ("probe", "options", "words"),
    [
        ((3,), {}, "the inputs are a int"),
        (("text",), {}, "the inputs are a str"),
        (([(X, Y)], Y), {}, "targets are given beside an iterable"),
        ((X, Y), {"loss": 0.5}, "loss=0.5"),
        ((X,), {"loss": F.mse_loss}, "no targets for the loss"),
    ],
)
def test_mistakes_are_told(tmp_path, caplog, recording, probe, options, words):
    model, optimizer, monitor = start(tmp_path if recording else None)
    monitor.probe(*probe, **options)
    monitor.probe(*probe, **options)
    fit(model, optimizer, batches(1))
    monitor.close()
    assert words in caplog.text
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("probe", "loss", "words"),
    [
        ((X, Y), lambda *_: 1 / 0, "ZeroDivisionError"),
        ((X[:, :2], Y), F.cross_entropy, "RuntimeError"),
        ((iter([]),), F.cross_entropy, "the probe set is empty"),
    ],
)
def test_a_failure_ends_the_probe_and_nothing_else(tmp_path, caplog, probe, loss, words):
    model, optimizer, monitor = start(tmp_path)
    for _ in range(3):
        monitor.probe(*probe, loss=loss)
        fit(model, optimizer, batches(1))
    monitor.close()
    assert len(caplog.records) == 1
    telemetry = read(tmp_path)
    assert words in telemetry.header["probe_stopped"]
    assert len(telemetry["grad_norm"]) == 3


def test_a_sharded_model_is_not_run_by_one_rank(tmp_path, caplog):
    model = mlp()
    model[0].weight.full_tensor = lambda: None  # what marks a DTensor
    telemetry = probed(model, tmp_path, X, Y)
    assert "sharded" in telemetry.header["probe_stopped"]


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(1, 4),
    time=st.lists(st.integers(1, 3), max_size=2),
    classes=st.integers(2, 6),
    is_second=st.booleans(),
    scale=st.sampled_from([0.1, 1.0, 30.0]),
    size=st.sampled_from([1, 7, 2**22]),
)
def test_logits_of_any_shape_are_measured(batch, time, classes, is_second, scale, size):
    torch.manual_seed(batch + classes)
    output = torch.randn(batch, *time, classes, dtype=torch.float64) * scale
    targets = torch.randint(-1, classes, (batch, *time))
    targets[targets == -1] = logits_room.IGNORED
    targets[(0,) * targets.dim()] = 1
    given_out = output.movedim(-1, 1) if is_second and classes not in time else output
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logits_room, "_MOST_ELEMENTS", size)
        rows = logits_room.rows_of({"logits": given_out}, targets)
        assert rows is not None
        sums = logits_room.sums(*rows)
    found = {
        f"{'probe/' * (n == 'accuracy')}{n}": v.item() for n, v in logits_room.means(sums).items()
    }
    expected = by_hand(output.reshape(-1, classes), targets.reshape(-1))
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)
