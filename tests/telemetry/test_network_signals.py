"""Signals of what modules put out and of the probe set."""

import numpy as np
import pytest
import torch

from orchestrator import watch
from orchestrator.nouns import Series, Telemetry
from orchestrator.telemetry import read, signals


def value(name, header=None, **columns):
    """One signal of series that are named with __ for the slash, at steps 0, 10, ..."""
    named = {
        key.replace("__", "/"): Series(10 * np.arange(len(v)), np.array(v, dtype=np.float64))
        for key, v in columns.items()
    }
    found = signals(Telemetry(named, header or {}))
    return found[name].value if name in found else None


def stds(*first):
    names = [f"net.{i}" for i in range(len(first))]
    columns = {f"activation_std__{n}": [v, 5.0] for n, v in zip(names, first, strict=True)}
    weights = ",".join(f"{name}.weight" for name in names)
    return {"header": {"weight_layers": weights}, **columns}


def test_decay_is_the_factor_per_layer_at_the_start():
    assert value("activation_decay", **stds(1, 0.5, 0.25, 0.125)) == pytest.approx(0.5)
    assert value("activation_decay", **stds(1, 3, 9)) == pytest.approx(3)


def test_decay_does_not_see_one_odd_layer_nor_modules_without_weights():
    columns = stds(2.0, 2.0, 2.0, 2.0, 2.0, 1e-9)
    assert value("activation_decay", **columns) == pytest.approx(1)
    assert value("activation_decay", **stds(8, 4, 2, 0.0)) == pytest.approx(0.5)
    columns["activation_std__relu"] = [1e6, 1.0]
    assert value("activation_decay", **columns) == pytest.approx(1)


def test_two_layers_are_no_depth():
    assert value("activation_decay", **stds(1, 0.5)) is None
    assert value("activation_decay", **stds(1, 0.5, np.nan)) is None


def test_decay_of_a_scaled_chain_is_the_scale(tmp_path):
    """Against layers whose gain is known: each multiplies the std by 0.3."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(400, 400, bias=False) for _ in range(6)))
    for layer in model:
        torch.nn.init.normal_(layer.weight, std=0.3 / 20)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = watch(model, optimizer, folder=tmp_path)
    model(torch.randn(50, 400)).mean().backward()
    optimizer.step()
    monitor.close()
    assert signals(read(tmp_path))["activation_decay"].value == pytest.approx(0.3, rel=0.05)


def test_the_worst_module_counts():
    columns = {"dead_units__a": [0.9, 0.1], "dead_units__b": [0.0, 0.4]}
    assert value("dead_units", **columns) == 0.4
    zeros = {"activation_zeros__a": [0.9, 0.9, 0.3, 0.2, 0.3], "activation_zeros__b": [0.5]}
    assert value("activation_zeros", **zeros) == 0.5
    assert value("activation_saturation", activation_saturated__t=[0, 0, 0.7, 0.8, 0.9]) == 0.8


def test_logits_at_the_last_evaluation_and_at_the_first():
    columns = {"logit_variance": [4, 1], "logit_spread": [3, 7], "entropy": [1, 0.2]}
    assert value("logit_variance", **columns) == 1
    assert value("logit_spread", **columns) == 7
    assert value("initial_logit_std", **columns) == 2
    assert value("relative_entropy", **columns) == 0.2


def test_log_z_drifts_from_first_to_last():
    assert value("log_z_drift", log_z=[2.0, 9.0, 7.0]) == 5
    assert value("log_z_drift", log_z=[2.0]) is None


def test_an_inconsistent_evaluation_is_told():
    assert value("eval_inconsistency", eval_inconsistency=[0.25]) == 0.25


def test_every_one_has_a_unit():
    columns = {"log_z": [1.0, 2.0], "entropy": [1.0], "logit_variance": [1.0]}
    named = {n: Series(np.arange(len(v)), np.array(v)) for n, v in columns.items()}
    units = {name: signal.unit for name, signal in signals(Telemetry(named)).items()}
    assert units == {
        "logit_variance": "1",
        "initial_logit_std": "1",
        "relative_entropy": "1",
        "log_z_drift": "nat",
    }
