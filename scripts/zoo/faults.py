"""What may be wrong, and what must be told first of it."""

from __future__ import annotations

from functools import partial

from torch import nn
from torch.optim import AdamW

from zoo import models
from zoo.changes import (
    adam,
    collapse,
    dead,
    few,
    flipped,
    frozen_but,
    gained,
    in_order,
    mirrored,
    nan_at,
    on_numbers,
    pixels,
    random_labels,
    rare,
    redrawn,
    sgd,
    sharpened,
    through_half,
    with_softmax,
    without_head,
    zeroed,
)
from zoo.table import row

FAULTS = (
    row("Adam, lr 0.3", "learning rate", "instability", optimizer=adam(0.3)),
    row("SGD, lr 8", "learning rate", "instability", optimizer=sgd(8.0)),
    row(
        "momentum 0.98 at lr 0.6", "learning rate", "instability", optimizer=sgd(0.6, momentum=0.98)
    ),
    row("SGD, lr 1e-5", "learning rate", "learning_rate_too_low", optimizer=sgd(1e-5)),
    row("missing zero_grad", "loop", "stale_gradients", zeroes_gradients=False),
    row("loss with the wrong sign", "loop", "wrong_sign", objective=flipped),
    row(
        "softmax before cross-entropy",
        "loss",
        "loss_head_mismatch",
        model=with_softmax(models.perceptron),
    ),
    row("squared error on class numbers", "loss", "loss_head_mismatch", criterion=on_numbers),
    row("all weights zero", "initialisation", "bad_initialisation", prepare=zeroed),
    row("weights from N(0, 3)", "initialisation", "bad_initialisation", prepare=redrawn(3.0)),
    row(
        "weights from N(0, 1e-3), 6 layers",
        "initialisation",
        "bad_initialisation",
        model=partial(models.perceptron, depth=6),
        prepare=redrawn(1e-3),
    ),
    row(
        "8 sigmoid layers",
        "depth",
        "vanishing_gradients",
        model=partial(models.perceptron, depth=8, activation=nn.Sigmoid),
    ),
    row(
        "10 layers of gain 6",
        "depth",
        "exploding_gradients bad_initialisation",
        model=partial(models.perceptron, depth=10),
        prepare=gained(6.0),
    ),
    row("bias -20 before a ReLU", "dead units", "dead_units", prepare=dead(1)),
    row("trunk detached", "structure", "detached", model=lambda: models.Cut(models.perceptron())),
    row("head not in the optimizer", "structure", "not_optimized", optimized=without_head),
    row(
        "all frozen but batch norm",
        "structure",
        "frozen",
        model=models.normalised,
        prepare=frozen_but(nn.BatchNorm1d),
    ),
    row("inputs up to 4080", "inputs", "input_scale", data=pixels(4080.0)),
    row("random labels", "labels", "label_noise", data=random_labels, epochs=30),
    row(
        "60 images, width 512",
        "overfitting",
        "overfitting",
        model=partial(models.perceptron, 512),
        data=few(60),
        epochs=150,
    ),
    row(
        "AdamW, weight decay 200",
        "regularisation",
        "over_regularised",
        optimizer=partial(AdamW, lr=1e-3, weight_decay=200.0),
    ),
    row(
        "dropout 0.95",
        "regularisation",
        "over_regularised",
        model=partial(models.perceptron, dropout=0.95),
    ),
    row("SGD clipped at 1e-3", "clipping", "high_clip_ratio", optimizer=sgd(), clip=1e-3),
    row("Adam, eps 10", "epsilon", "epsilon_too_large", optimizer=adam(eps=10.0)),
    row("NaN at step 150", "non-finite", "non_finite", objective=nan_at(150)),
    row("validation mirrored", "evaluation", "validation_shift", view=mirrored),
    row(
        "no eval mode",
        "evaluation",
        "evaluation_in_training_mode",
        model=partial(models.perceptron, dropout=0.5),
        evaluates_in_eval_mode=False,
    ),
    row("rare classes, 40:1", "imbalance", "class_imbalance", data=rare(40, range(4, 10))),
    row("sorted, not shuffled", "order", "data_order", data=in_order, shuffles=False),
    row("lr to zero after 10 steps", "schedules", "schedule_collapse", schedule=collapse),
    row(
        "queries and keys x40",
        "attention",
        "attention_saturation",
        model=models.Attention,
        prepare=sharpened(40.0),
    ),
    row(
        "logits x200",
        "logits",
        "logit_scale",
        model=lambda: models.Scaled(models.perceptron(), 200.0),
    ),
    row("half precision at scale 1e-6", "half precision", "underflow", tamper=through_half(1e-6)),
)
"""The 33 of the published sets."""
