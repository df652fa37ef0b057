"""What is to be done in code or data where no factor of a campaign can mend what was found."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.diagnose.registry import RULES
from orchestrator.nouns import Finding

REMEDIES = {
    "not_optimized": "give them to the optimizer, or freeze them with requires_grad_(False)",
    "detached": "look for .detach(), no_grad, .item() or numpy between them and the loss",
    "frozen": "let the output head train, or unfreeze more of the model",
    "stale_gradients": "call optimizer.zero_grad() before each step's first backward pass",
    "wrong_sign": "minimise the loss: look for a minus sign, or maximize=True in the optimizer",
    "loss_head_mismatch": "give cross_entropy the logits: no softmax before it, and class indices "
    "as its targets",
    "evaluation_inconsistent": "give functional dropout training=self.training, and sample nothing "
    "in evaluation mode",
    "evaluation_in_training_mode": "call model.eval() before evaluating and model.train() after",
    "batch_norm_of_one": "larger batches, or group or layer normalisation",
    "future_leak": "mask the attention to later places (is_causal=True), and look for pooling over "
    "time",
    "targets_unshifted": "predict tokens[:, 1:] from tokens[:, :-1]",
    "padding_counts": "give padding the target -100 (ignore_index), and padding_idx no token that "
    "means something",
    "padding_seen": "mask the padding as keys of the attention (key_padding_mask, attention_mask), "
    "and leave it out of pooling",
    "untied_weights": "tie them anew after copying or moving the model, or draw them apart",
    "input_scale": "standardise the inputs with the train set's mean and standard deviation",
    "validation_shift": "evaluate train data through the validation path and compare; preprocess "
    "both alike",
    "label_noise": "look at labels beside their inputs, and check that both are shuffled alike",
    "class_imbalance": "weight the loss or sample the rare classes more often",
    "data_order": "shuffle the train set (shuffle=True) with each epoch",
    "leakage": "remove duplicates and split anew; scores will fall and cannot be compared",
    "bad_initialisation": "initialise as the layer's framework does, or scale by 1 / sqrt(fan-in)",
    "attention_saturation": "scale queries by 1 / sqrt(head width), normalise queries and keys",
    "logit_scale": "draw the output layer smaller, or take the multiplier off the logits",
    "vanishing_gradients": "other activations, normalisation or residual connections; the learning "
    "rate is not the cause",
    "exploding_gradients": "initialise by fan-in, normalise, or add residual connections",
    "dead_units": "check biases and initialisation; another activation keeps a gradient",
    "layer_imbalance": "learning rates per parameter group",
    "underflow": "raise the loss scale, or train in bfloat16 or single precision",
    "loss_scale_collapse": "compute what overflows in single precision",
    "epsilon_too_large": "lower the optimizer's eps (torch: 1e-8)",
    "data_wait": "more workers, prefetching, or a faster format",
    "noise_dominated": "a larger batch, or accumulation",
}
"""By rule; what a trial can test stands in hypotheses.TABLE, and comes after these."""

BLOCKING = ("structure", "evaluation", "sequences")
"""Themes whose findings make every trial worthless: a broken program would be tuned."""


def remedies(findings: Sequence[Finding]) -> tuple[str, ...]:
    """What to do outside a campaign about each finding, as sentences."""
    return tuple(f"{f.rule}: {REMEDIES[f.rule]}" for f in findings if f.rule in REMEDIES)


def blocking(findings: Sequence[Finding]) -> tuple[str, ...]:
    """The remedies without which no trial is worth its cost; empty if trials may be planned."""
    registered = [f for f in findings if f.rule in RULES]  # a campaign has findings of its own
    return remedies([f for f in registered if RULES[f.rule].theme in BLOCKING])
