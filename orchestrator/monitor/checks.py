"""The user's mistakes at `watch`, `log` and `clip_grad_norm_`: told in a campaign or not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from orchestrator.errors import OrchestratorError, collect, nearest
from orchestrator.monitor.intake import MicroBatch
from orchestrator.nouns import Level, Monitoring
from orchestrator.telemetry.layout import EVERY_VARIABLE, HISTOGRAMS_VARIABLE, LEVEL_VARIABLE


def model_and_optimizers(
    model: nn.Module, optimizer: Optimizer | Sequence[Optimizer]
) -> tuple[Optimizer, ...]:
    """The optimizers, if they and the model belong together."""
    if not isinstance(model, nn.Module):
        raise OrchestratorError(
            f"watch: the model is a {type(model).__name__}",
            "give the torch.nn.Module that is trained",
        )
    parameters = set(model.parameters())
    if not parameters:
        raise OrchestratorError(
            f"watch: {type(model).__name__} has no parameters", "give the module that is trained"
        )
    if any(is_lazy(p) for p in parameters):
        raise OrchestratorError(
            "watch: the model has lazy parameters without a shape",
            "run one batch through it before you call watch",
        )
    optimizers = tuple(optimizer) if isinstance(optimizer, Sequence) else (optimizer,)
    if not optimizers:
        raise OrchestratorError(
            "watch: no optimizer was given", "give the one that trains the model"
        )
    collect(_optimizer_mistakes(optimizers, parameters))
    return optimizers


def _optimizer_mistakes(
    optimizers: Sequence[Optimizer], parameters: set[nn.Parameter]
) -> list[OrchestratorError]:
    mistakes = []
    for optimizer in optimizers:
        name = type(optimizer).__name__
        if not isinstance(optimizer, Optimizer):
            mistakes.append(
                OrchestratorError(
                    f"watch: {name} is not a torch.optim.Optimizer",
                    "give the optimizer itself or a sequence of them, no wrapper, no scheduler",
                )
            )
        elif not any(p in parameters for g in optimizer.param_groups for p in g["params"]):
            mistakes.append(
                OrchestratorError(
                    f"watch: {name} holds none of the model's parameters",
                    "create it from this model's parameters, after the model was moved or replaced",
                )
            )
    return mistakes


def monitoring(
    level: str | None, every: int | None, histograms: int | None, environment: Mapping[str, str]
) -> Monitoring:
    """How much to record: what is given, else what the campaign says in the environment."""
    if level is None:
        level = environment.get(LEVEL_VARIABLE, Monitoring().level.value)
    intervals = {"every": every, "histograms": histograms}
    variables = {"every": EVERY_VARIABLE, "histograms": HISTOGRAMS_VARIABLE}
    told = {n: _number(environment[v]) for n, v in variables.items() if v in environment}
    chosen = told | {name: steps for name, steps in intervals.items() if steps is not None}
    levels = [each.value for each in Level]
    mistakes = []
    if level not in levels:
        mistakes.append(OrchestratorError(f"watch: level={level!r}", nearest(str(level), levels)))
    for name, steps in chosen.items():
        if isinstance(steps, bool) or not isinstance(steps, Integral) or steps < 1:
            mistakes.append(
                OrchestratorError(
                    f"watch: {name}={steps!r}", "give a number of optimizer steps, 1 or more"
                )
            )
    collect(mistakes)
    return Monitoring(Level(level), **{name: int(steps) for name, steps in chosen.items()})


def _number(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def first_step(value: int | None) -> None:
    """Raise unless it is a number of steps or nothing."""
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, Integral) or value < 0
    ):
        raise OrchestratorError(
            f"watch: first_step={value!r}", "give the number of optimizer steps made, 0 or more"
        )


def grad_scaler(scaler: object) -> None:
    """Raise unless it is a GradScaler or nothing."""
    if scaler is not None and not isinstance(scaler, GradScaler):
        raise OrchestratorError(
            f"watch: the scaler is a {type(scaler).__name__}",
            "give the torch.amp.GradScaler that scales the loss, or leave it out",
        )


def micro_batch(id: object, samples: object, tokens: object) -> MicroBatch:
    """What the program tells of a micro-batch."""
    if id is not None and (isinstance(id, bool) or not isinstance(id, str | Integral)):
        raise OrchestratorError(
            f"batch: id is a {type(id).__name__}",
            "give a text or a whole number, such as the index of the batch in its epoch",
        )
    told = {"samples": samples, "tokens": tokens}
    counts = {n: None if v is None else number("batch", n, v) for n, v in told.items()}
    return MicroBatch(None if id is None else str(id), **counts)


def step(value: int, name: str, last: int) -> int:
    """`value`, if it can be the step of metric `name`, logged at step `last` before."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
        raise OrchestratorError(
            f"log: step={value!r}",
            "give the optimizer step, a whole number from 0, or leave it out",
        )
    if value < last:
        raise OrchestratorError(
            f"log: step {value} of {name!r} comes after its step {last}",
            "log in the order of the steps, or leave step out",
        )
    return int(value)


def number(method: str, name: str, value: object) -> float | Tensor:
    """`value` as a float, or as a 0-d tensor that nobody else changes and nobody waits for."""
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
        return value.detach().reshape(()).clone()
    if isinstance(value, Real):
        return float(value)
    what = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
    raise OrchestratorError(
        f"{method}: {name} is {what}", "give a number or a tensor with one element"
    )


def probe_set(inputs: object, targets: object, loss: object) -> None:
    """Refuse what no probe set can be."""
    is_batch = isinstance(inputs, Tensor | Mapping | tuple)
    if not is_batch and (isinstance(inputs, str) or not isinstance(inputs, Iterable)):
        raise OrchestratorError(
            f"probe: the inputs are a {type(inputs).__name__}",
            "give a tensor, a tuple or mapping of the model's arguments, or an iterable of batches",
        )
    if not is_batch and targets is not None:
        raise OrchestratorError(
            "probe: targets are given beside an iterable of batches",
            "let each batch be (inputs, targets), or concatenate them",
        )
    if loss is not None and not callable(loss):
        raise OrchestratorError(
            f"probe: loss={loss!r}", "give a function of the model's output and the targets"
        )
    if is_batch and loss is not None and targets is None and not isinstance(inputs, Mapping):
        raise OrchestratorError(
            "probe: there are no targets for the loss",
            "give them after the inputs; an autoencoder's are the inputs again",
        )


def max_norm(value: float | None) -> float:
    """Threshold of the total norm; infinite if nothing is to be clipped."""
    if value is None:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, Real) or not value > 0:
        raise OrchestratorError(
            f"clip_grad_norm_: max_norm={value!r}",
            "give a number above 0 (a negative one turns gradients round, 0 stops the training), "
            "or None to record the norm and clip nothing",
        )
    return float(value)
