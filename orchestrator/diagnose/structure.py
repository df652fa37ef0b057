"""Rules about how the program is wired: exact, and no trial can mend what they find."""

from __future__ import annotations

import math

from orchestrator.diagnose.curves import first_step, total_steps, whole_run
from orchestrator.diagnose.layers import classes
from orchestrator.diagnose.progress import progress
from orchestrator.diagnose.registry import ANYTHING, rule
from orchestrator.nouns import Finding, Telemetry

FEWEST = 10  # sampled steps before a layer is said to have had no gradient
MOSTLY = 0.5


def names(telemetry: Telemetry, fact: str) -> list[str]:
    """A header's list of parameters."""
    return [name for name in str(telemetry.header.get(fact) or "").split(",") if name]


def _wired_wrong(
    telemetry: Telemetry, rule_name: str, layers: list[str], says: str, *confounders: str
) -> Finding:
    listed = ", ".join(layers[:3]) + (f" and {len(layers) - 3} more" if len(layers) > 3 else "")
    return Finding(
        rule=rule_name,
        severity=1.0,
        summary=says,
        steps=whole_run(telemetry),
        layer=layers[0] if len(layers) == 1 else None,
        evidence={"count": float(len(layers)), "layers": listed},
        confounders=confounders,
    )


@rule(needs=(), tells="what no optimizer moves", explains=(ANYTHING,), exact=True)
def not_optimized(telemetry: Telemetry) -> Finding | None:
    """Trainable parameters that no optimizer holds: their gradients are computed and thrown away.

    Exact: the set difference of what is trainable and what is in the parameter groups (row 1 of
    docs/diagnosis.md; DiffRate#7, pytorch#14467). Excluded: tied weights (one parameter), several
    optimizers (all that were given to `watch`).
    """
    layers = names(telemetry, "not_optimized")
    says = "{count:.0f} trainable parameters are in no optimizer: {layers}"
    mimic = "parameters kept out on purpose, but not frozen"
    return _wired_wrong(telemetry, "not_optimized", layers, says, mimic) if layers else None


@rule(needs=("param_norm/",), tells="a cut graph", explains=(ANYTHING,), exact=True)
def detached(telemetry: Telemetry) -> Finding | None:
    """Parameters that are trained and never had a gradient, while others had.

    Exact: no gradient (None, not zero) on any sampled step (row 2 of docs/diagnosis.md; there 50
    steps; here 10 sampled ones and all that follow). Excluded: conditional branches and experts,
    which have one on some steps; LoRA's second matrix, whose gradient is zero and not None.
    """
    touched = telemetry.layers("grad_norm")
    sampled = telemetry.layers("param_norm")
    layers = [n for n, series in sampled.items() if n not in touched and len(series) >= FEWEST]
    if not touched or not layers:
        return None
    says = "{count:.0f} parameters never had a gradient: {layers}"
    return _wired_wrong(telemetry, "detached", layers, says, "a branch that was never taken")


@rule(
    needs=("train/loss|probe/loss",),
    tells="a layer frozen by mistake",
    explains=(ANYTHING,),
)
def frozen(telemetry: Telemetry) -> Finding | None:
    """What would have to learn is frozen, and the run is underfit.

    No weight matrix is trained, or the output head is frozen though the first loss is that of a
    guess, at least 90 % of log C (row 3 of docs/diagnosis.md; PyTorch forum 84911; the 90 % is
    ours). Excluded: transfer learning with a head that trains, low-rank adapters (their matrices
    train, and a pretrained head starts far below log C), runs that learn.
    """
    course, still = progress(telemetry), names(telemetry, "frozen")
    if course is None or not course.is_underfit or not still:
        return None
    count = classes(telemetry)
    guesses = count is not None and course.start >= 0.9 * math.log(count)
    if names(telemetry, "weight_layers") and not (telemetry.header["head"] in still and guesses):
        return None
    says = "{count:.0f} parameters are frozen, {remaining:.0%} of the start loss is left: {layers}"
    found = _wired_wrong(telemetry, "frozen", still, says, "a probe of random features")
    return Finding(
        found.rule,
        found.severity,
        found.summary,
        found.steps,
        found.layer,
        {**found.evidence, "remaining": course.remaining},
        found.confounders,
    )


@rule(needs=(), tells="gradients left over from the step before", explains=(ANYTHING,), exact=True)
def stale_gradients(telemetry: Telemetry) -> Finding | None:
    """Steps are made from gradients that still have those of the steps before in them.

    Exact, by the versions of a gradient's memory, on more than half of the steps (row 4 of
    docs/diagnosis.md; SO 60335387). Excluded: accumulation over micro-batches (only what was there
    when the first of them began counts), parameters that are frozen or left out of a step.
    """
    stale = float(telemetry.header.get("stale_steps") or 0)
    total = total_steps(telemetry) - first_step(telemetry)
    if total < FEWEST or stale <= MOSTLY * total:
        return None
    return Finding(
        rule="stale_gradients",
        severity=1.0,
        summary="{stale:.0f} of {total:.0f} steps began on top of the last step's gradients",
        steps=whole_run(telemetry),
        evidence={"stale": stale, "total": float(total)},
        confounders=("accumulation over optimizer steps on purpose",),
    )
