"""What may look wrong and is not: nothing may be told of it."""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.optim import AdamW

from zoo import models
from zoo.changes import (
    adam,
    cosine,
    few_val,
    frozen_trunk,
    linear_decay,
    overflowing,
    pixels,
    rare,
    sgd,
    step_decay,
    tokens,
    warmup,
)
from zoo.table import row

HEALTHY = (
    row("Adam", "optimizers", ""),
    row("SGD", "optimizers", "", optimizer=sgd()),
    row(
        "embedding of 20,000 rows",
        "embeddings",
        "",
        model=models.Pixels,
        optimizer=adam(3e-3),
        epochs=8,
    ),
    row(
        "frozen backbone and a fresh head",
        "backbones",
        "",
        model=partial(models.perceptron, 256),
        optimizer=adam(3e-3),
        prepare=frozen_trunk,
    ),
    row("warm-up", "schedules", "", schedule=warmup(0.3)),
    row("validation of 32", "small sets", "", data=few_val),
    row(
        "label smoothing 0.2",
        "regularised",
        "",
        criterion=partial(F.cross_entropy, label_smoothing=0.2),
        evaluated=F.cross_entropy,
    ),
    row("dropout 0.5", "regularised", "", model=partial(models.perceptron, 128, dropout=0.5)),
    row("cosine to zero", "schedules", "", schedule=cosine),
    row("80 epochs", "small sets", "", epochs=80),
    row("Adam clipped at 0.05", "clipping", "", clip=0.05),
    row(
        "residual branches that start at zero",
        "initialisation",
        "",
        model=partial(models.Residual, zeroed=True),
    ),
    row("accumulation of 4", "loop", "", accumulate=4, batch=8),
    row("experts left out at random", "structure", "", model=models.Dropping),
    row("overflow in the first 3 steps", "non-finite", "", tamper=overflowing(3)),
    row(
        "rare class, 12:1, learned",
        "imbalance",
        "",
        data=rare(12, (3,), everywhere=False),
        epochs=25,
    ),
    row("attention", "attention", "", model=models.Attention, optimizer=adam(3e-3)),
    row("inputs up to 16", "inputs", "", data=pixels(16.0)),
    row(
        "tanh, SGD, lr 0.05",
        "optimizers",
        "",
        model=partial(models.perceptron, activation=nn.Tanh),
        optimizer=sgd(0.05),
        epochs=20,
    ),
    row("batch of 8", "optimizers", "", batch=8, epochs=6),
)
"""The 20 look-alikes of the published sets."""

MORE_HEALTHY = (
    row("convolution", "convolution", "", model=models.convolution, optimizer=adam(2e-3)),
    row(
        "convolution: SGD, momentum",
        "convolution",
        "",
        model=models.convolution,
        optimizer=sgd(0.03, momentum=0.9),
    ),
    row(
        "convolution: dropout 0.3",
        "convolution",
        "",
        model=partial(models.convolution, dropout=0.3),
        optimizer=adam(2e-3),
    ),
    row("residual", "residual", "", model=models.Residual),
    row(
        "residual: linear warm-up and decay",
        "residual",
        "",
        model=models.Residual,
        schedule=linear_decay,
    ),
    row(
        "residual: AdamW, weight decay 0.1",
        "residual",
        "",
        model=models.Residual,
        optimizer=partial(AdamW, lr=1e-3, weight_decay=0.1),
    ),
    row("batch norm", "batch norm", "", model=models.normalised),
    row(
        "batch norm, SGD, steps",
        "batch norm",
        "",
        model=models.normalised,
        optimizer=sgd(),
        schedule=step_decay,
    ),
    row(
        "sparse embedding, SGD",
        "embeddings",
        "",
        model=partial(models.Pixels, sparse=True),
        optimizer=sgd(0.5),
        epochs=12,
        records_norm=False,
    ),
    row(
        "attention: cosine, clipped at 1",
        "attention",
        "",
        model=models.Attention,
        optimizer=adam(3e-3),
        schedule=cosine,
        clip=1.0,
    ),
    row("tokens", "tokens", "", model=models.Tokens, optimizer=adam(3e-3), data=tokens()),
    row(
        "tokens: padding left out of the loss",
        "tokens",
        "",
        model=partial(models.Tokens, padding=models.LEVELS),
        optimizer=adam(3e-3),
        data=tokens(padded=True),
    ),
    row(
        "tokens: an autoencoder",
        "tokens",
        "",
        model=partial(models.Tokens, causal=False),
        optimizer=adam(3e-3),
        data=tokens(shifted=False),
    ),
    row(
        "tokens: an autoencoder that masks padding",
        "tokens",
        "",
        model=partial(models.Tokens, causal=False, padding=models.LEVELS, masked=True),
        optimizer=adam(3e-3),
        data=tokens(shifted=False, padded=True),
    ),
    row(
        "convolution: batch norm, batch of 2",
        "convolution",
        "",
        model=models.normalised_convolution,
        batch=2,
        epochs=4,
    ),
    row(
        "convolution: batch norm",
        "convolution",
        "",
        model=models.normalised_convolution,
        optimizer=adam(2e-3),
    ),
)
"""Further ones: other models and schedules."""
