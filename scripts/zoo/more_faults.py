"""Further faults: other models, and other ways to make the same mistakes."""

from __future__ import annotations

from functools import partial

from torch import nn
from torch.optim import AdamW

from zoo import models
from zoo.changes import (
    adam,
    collapse,
    few,
    flipped,
    frozen_but,
    in_order,
    leaked,
    mirrored,
    nan_at,
    pixels,
    random_labels,
    redrawn,
    sgd,
    times,
    with_softmax,
    without_first,
    zeroed,
)
from zoo.table import WATCH, row

MORE_FAULTS = (
    row("optimizer of another model", "handling", WATCH, loses_optimizer=True),
    row("first layer not in the optimizer", "handling", "not_optimized", optimized=without_first),
    row(
        "dropout that ignores eval mode",
        "handling",
        "evaluation_inconsistent",
        model=models.Careless,
    ),
    row(
        "clipped before unscaling",
        "handling",
        "high_clip_ratio",
        optimizer=sgd(),
        clip=1.0,
        tamper=times(65536.0),
        unscale=65536.0,
    ),
    row("a fifth of validation in train", "handling", "leakage", data=leaked),
    row(
        "convolution: Adam, lr 0.3",
        "convolution",
        "instability",
        model=models.convolution,
        optimizer=adam(0.3),
    ),
    row(
        "convolution: SGD, lr 8",
        "convolution",
        "instability",
        model=models.convolution,
        optimizer=sgd(8.0),
    ),
    row(
        "convolution: SGD, lr 1e-5",
        "convolution",
        "learning_rate_too_low",
        model=models.convolution,
        optimizer=sgd(1e-5),
    ),
    row(
        "convolution: softmax before cross-entropy",
        "convolution",
        "loss_head_mismatch",
        model=with_softmax(models.convolution),
    ),
    row(
        "convolution: weights from N(0, 3)",
        "convolution",
        "bad_initialisation",
        model=models.convolution,
        prepare=redrawn(3.0),
    ),
    row(
        "convolution: validation mirrored",
        "convolution",
        "validation_shift",
        model=models.convolution,
        view=mirrored,
    ),
    row(
        "convolution: random labels",
        "convolution",
        "label_noise",
        model=partial(models.convolution, 24),
        data=random_labels,
        epochs=30,
    ),
    row(
        "convolution: inputs up to 4080",
        "convolution",
        "input_scale",
        model=models.convolution,
        data=pixels(4080.0),
    ),
    row(
        "convolution: SGD clipped at 1e-3",
        "convolution",
        "high_clip_ratio",
        model=models.convolution,
        optimizer=sgd(),
        clip=1e-3,
    ),
    row(
        "residual: missing zero_grad",
        "residual",
        "stale_gradients",
        model=models.Residual,
        zeroes_gradients=False,
    ),
    row(
        "residual: loss with the wrong sign",
        "residual",
        "wrong_sign",
        model=models.Residual,
        objective=flipped,
    ),
    row(
        "residual: all weights zero",
        "residual",
        "bad_initialisation",
        model=models.Residual,
        prepare=zeroed,
    ),
    row(
        "residual: 80 images",
        "residual",
        "overfitting",
        model=partial(models.Residual, 128),
        data=few(80),
        epochs=120,
    ),
    row(
        "residual: weight decay 200",
        "residual",
        "over_regularised",
        model=models.Residual,
        optimizer=partial(AdamW, lr=1e-3, weight_decay=200.0),
    ),
    row(
        "residual: NaN at step 90",
        "residual",
        "non_finite",
        model=models.Residual,
        objective=nan_at(90),
    ),
    row(
        "residual: Adam, eps 10",
        "residual",
        "epsilon_too_large",
        model=models.Residual,
        optimizer=adam(eps=10.0),
    ),
    row(
        "residual: lr to zero after 10 steps",
        "residual",
        "schedule_collapse",
        model=models.Residual,
        schedule=collapse,
    ),
    row(
        "attention: all but norms frozen",
        "attention",
        "frozen",
        model=models.Attention,
        prepare=frozen_but(nn.LayerNorm),
    ),
    row(
        "attention: Adam, lr 0.3",
        "attention",
        "instability",
        model=models.Attention,
        optimizer=adam(0.3),
    ),
    row(
        "attention: sorted, not shuffled",
        "attention",
        "data_order",
        model=models.Attention,
        data=in_order,
        shuffles=False,
    ),
)
"""Further ones: other models, and other ways to make the same mistakes."""
