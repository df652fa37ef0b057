"""Rules about the first steps: weights, attention and logits as they were drawn."""

from __future__ import annotations

import numpy as np

from orchestrator.diagnose.curves import (
    LARGE_UPDATE,
    early_update_peak,
    first_step,
    total_steps,
    whole_run,
)
from orchestrator.diagnose.layers import at_start, is_tall, latest, weights
from orchestrator.diagnose.progress import progress
from orchestrator.diagnose.registry import rule
from orchestrator.diagnose.structure import names
from orchestrator.nouns import Finding, Telemetry

WIDE, NARROW = 10.0, 0.1  # times the norm that torch draws by default
SATURATED = 0.15  # attention entropy over log T
LOGIT_STD = 5.0

DOWNSTREAM = (
    "logit_scale",
    "vanishing_gradients",
    "exploding_gradients",
    "dead_units",
    "layer_imbalance",
    "instability",
    "loss_spikes",
    "gradient_spike",
    "non_finite",
    "high_clip_ratio",
    "epsilon_too_large",
    "learning_rate_too_low",
    "over_regularised",
    "plateau",
    "overfitting",
)


@rule(needs=(), tells="tied weights that came apart", exact=True)
def untied_weights(telemetry: Telemetry) -> Finding | None:
    """An output layer that starts with an embedding's values, and is another parameter.

    Exact (section 3 of docs/diagnosis.md, "to add": weight tying broken; the test is ours).
    Excluded: layers that are tied, matrices whose elements are all alike.
    """
    layers = names(telemetry, "untied")
    if not layers:
        return None
    return Finding(
        rule="untied_weights",
        severity=0.5,
        summary="{layers} equals an embedding and is another parameter: tied weights came apart",
        steps=whole_run(telemetry),
        layer=layers[0],
        evidence={"layers": ",".join(layers)},
        confounders=("a copy on purpose, to begin with",),
    )


@rule(
    extra=True,
    needs=("probe/attention_entropy|val/attention_entropy",),
    tells="attention that has saturated",
    explains=("bad_initialisation", *DOWNSTREAM),
)
def attention_saturation(telemetry: Telemetry) -> Finding | None:
    """Attention looks at single tokens from the first evaluation on, and the run does not learn.

    `probe/attention_entropy` is for the user to log: entropy of the attention rows over log T,
    median over heads. Below 0.15 in the first evaluation and in the median of all (row 28 of
    docs/diagnosis.md; Wortsman et al. 2023). Excluded: early updates above 5e-2, which are the root
    (`instability`), heads that sharpen while the run learns,
    copy heads among others (the median), padding and the first causal row if the user leaves them
    out.
    """
    name = next(n for n in ("probe/attention_entropy", "val/attention_entropy") if n in telemetry)
    course, first = progress(telemetry), at_start(telemetry[name])
    if course is None or course.is_learned or first is None:
        return None
    if early_update_peak(telemetry) > LARGE_UPDATE:
        return None
    median = float(np.median(telemetry[name].values))
    if not max(first, median) < SATURATED:
        return None
    return Finding(
        rule="attention_saturation",
        severity=0.8,
        summary="attention has {entropy:.2g} of the entropy of an even look (healthy: above 0.15)",
        steps=whole_run(telemetry),
        evidence={"entropy": median, "entropy_at_start": first},
        confounders=("local attention by design", "rows of one token"),
    )


@rule(
    needs=("param_norm/", "train/loss|probe/loss"),
    tells="an initialisation out of scale",
    explains=DOWNSTREAM,
)
def bad_initialisation(telemetry: Telemetry) -> Finding | None:
    """Weights drawn far too wide, far too narrow, or all zero.

    Norm of each weight matrix before the first step over that of torch's default, U(-a, a) with
    a = 1 / sqrt(fan-in): one above 10 in a run whose first loss is above 3 log C or that has not
    learned; or more than half below 0.1 (zero included) in one that is underfit (row 10 of
    docs/diagnosis.md; DC wrong_init). Excluded: single matrices that are zero on purpose (residual
    branches, LoRA, heads), pretrained and muP weights in runs that learn.
    """
    course, drawn = progress(telemetry), telemetry.layers("param_norm")
    found = {w.name: (w, at_start(drawn[w.name])) for w in weights(telemetry) if w.name in drawn}
    scales = {n: norm / w.default_norm for n, (w, norm) in found.items() if norm is not None}
    if course is None or not scales or first_step(telemetry) > 0:  # a resumed run was drawn before
        return None
    widest = max(scales, key=lambda name: scales[name])
    narrow = float(np.mean([scale < NARROW for scale in scales.values()]))
    if scales[widest] > WIDE and (is_tall(telemetry, course) or not course.is_learned):
        layer, says = widest, "{layer} was drawn {scale:.3g} times as wide as by default"
    elif narrow > 0.5 and course.is_underfit:
        layer = min(scales, key=lambda name: scales[name])
        says = "{narrow:.0%} of the weight matrices were drawn at under a tenth of the default"
        says += " ({layer}: {scale:.2g})"
    else:
        return None
    return Finding(
        rule="bad_initialisation",
        severity=0.9,
        summary=says,
        steps=(0, total_steps(telemetry) - 1),
        layer=layer,
        evidence={"scale": scales[layer], "narrow": narrow, "layer": layer},
        confounders=("weights of a trained model", "a parametrisation with its own multipliers"),
    )


@rule(
    needs=("logit_variance|activation_std/", "train/loss|probe/loss"),
    tells="logits out of scale from other high first losses",
    explains=DOWNSTREAM[1:],
)
def logit_scale(telemetry: Telemetry) -> Finding | None:
    """Logits so large at the first evaluation that the answers are confidently wrong.

    Their standard deviation exceeds 5 and the first loss 3 log C (row 29 of docs/diagnosis.md; DC
    over_scaled_outputs). From the probe's logits; without a probe from what the last module puts
    out in the first step. Excluded: confidence that was learned (its loss is low).
    """
    if not is_tall(telemetry, progress(telemetry)):
        return None
    if "logit_variance" in telemetry:
        variance = at_start(telemetry["logit_variance"])
        std = None if variance is None else float(np.sqrt(variance))
    else:
        std = at_start(list(telemetry.layers("activation_std").values())[-1])
    if std is None or std <= LOGIT_STD:
        return None
    return Finding(
        rule="logit_scale",
        severity=0.8,
        summary="logits began with a standard deviation of {std:.3g} (healthy: about 1)",
        steps=whole_run(telemetry),
        evidence={"std": std},
        confounders=("inputs or weights that are too large", "a loss that is summed over a batch"),
    )


@rule(
    extra=True,
    needs=("log_z", "logit_spread"),
    tells="drifting logits",
    explains=("plateau", "non_finite"),
)
def logit_drift(telemetry: Telemetry) -> Finding | None:
    """The logits' normaliser runs away, and the run does not learn.

    log Z moved by more than 10 nat from its first to its last evaluation, most of it still in the
    second half, and logits spread over more than 50 (row 29 of docs/diagnosis.md; mission: spread
    above 50 is saturation; Wortsman et al. 2023; 10 nat ours). Excluded: confidence in right
    answers, for the run must not have learned.
    """
    course, z = progress(telemetry), telemetry["log_z"].values
    spread = latest(telemetry, "logit_spread")
    if course is None or course.is_learned or len(z) < 4 or spread is None or spread <= 50:
        return None
    moved, late = float(z[-1] - z[0]), float(z[-1] - z[len(z) // 2])
    if abs(moved) <= 10 or late / moved < 0.25:
        return None
    return Finding(
        rule="logit_drift",
        severity=0.6,
        summary="log Z moved by {moved:.3g} nat and moves on; logits spread over {spread:.3g}",
        steps=(int(telemetry["log_z"].steps[0]), int(telemetry["log_z"].steps[-1])),
        evidence={"moved": moved, "spread": spread},
        confounders=("a learning rate that is too high",),
    )
