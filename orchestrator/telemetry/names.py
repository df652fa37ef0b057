"""How series are called, and in which unit they are."""

from __future__ import annotations

import re

_SPLITS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "eval": "val",
    "test": "test",
    "probe": "probe",
}
_SPLIT_FIRST = re.compile(rf"({'|'.join(_SPLITS)})[_./](.+)", re.DOTALL)

_OF_LAYERS = {
    "grad_norm",
    "param_norm",
    "update_norm",
    "update_ratio",
    "update_cosine",
    "grad_cosine",
    "grad_zeros",
    "grad_nonfinite",
    "touched_rows",
}

_UNITS = {
    "grad_norm": "loss",
    "max_norm": "loss",
    "clip_coefficient": "1",
    "lr": "1",
    "param_norm": "1",
    "update_norm": "1",
    "update_ratio": "1",
    "update_cosine": "1",
    "grad_cosine": "1",
    "grad_zeros": "1",
    "grad_nonfinite": "count",
    "touched_rows": "1",
    "step_seconds": "s",
    "loss_scale": "1",
    "skipped_steps": "count",
    "nonfinite": "count",
    "samples": "count",
    "tokens": "count",
    "micro_batches": "count",
    "activation_mean": "1",
    "activation_std": "1",
    "activation_zeros": "1",
    "activation_saturated": "1",
    "dead_units": "1",
    "logit_spread": "1",
    "logit_variance": "1",
    "entropy": "1",
    "log_z": "1",
    "eval_inconsistency": "1",
}


def canonical(name: str) -> str:
    """The one name of a metric: the split it was measured on, a slash, the rest.

    `train_loss`, `train.loss` and `train/loss` are `train/loss`; `eval_loss` and `valid/loss` are
    `val/loss`. A name that does not begin with a split stays as it is.
    """
    match = _SPLIT_FIRST.fullmatch(name)
    return f"{_SPLITS[match[1]]}/{match[2]}" if match else name


def has_split(name: str) -> bool:
    """Whether a metric's name begins with the split it was measured on."""
    return _SPLIT_FIRST.fullmatch(name) is not None


def is_of_layer(name: str) -> bool:
    """Whether a series is of one trainable parameter of the model."""
    quantity, _, layer = name.partition("/")
    return bool(layer) and quantity in _OF_LAYERS


def is_of_module(name: str) -> bool:
    """Whether a series is of one module of the model: what it put out, or its dead units."""
    quantity, _, module = name.partition("/")
    return bool(module) and (quantity.startswith("activation_") or quantity == "dead_units")


def unit(name: str) -> str:
    """Unit of a series: "1" is dimensionless, "" unknown, for a metric of the user's.

    Norms of gradients are in the loss's unit, for parameters have none.
    """
    first, _, last = name.partition("/")
    if last == "loss" and first in _SPLITS.values():
        return "loss"
    return _UNITS.get(first, "")
