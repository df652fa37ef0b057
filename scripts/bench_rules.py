"""The rules of diagnosis: false alarms on healthy look-alikes, detection of planted faults.

`scripts/bench rules` draws synthetic trainings (orchestrator/diagnose/testing.py);
`scripts/bench rules --real` trains small networks as well. Fixed seeds; 95 % Wilson intervals.
Thresholds were tuned on the synthetic families and on the ReLU perceptron on digits ("tuned");
convolution, attention and tanh, and the MNIST images, were tried afterwards ("held out").
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from intervals import wilson
from real_traces import Recipe, trace

from orchestrator.diagnose import diagnose
from orchestrator.diagnose.testing import FAULTS, HEALTHY
from orchestrator.nouns import Telemetry

STRENGTHS = (0.1, 0.3, 0.6, 1.0)
SEEDS = 5

SGD = Recipe(optimizer="SGD", lr=0.1)
SMALL = Recipe(width=512, epochs=60)

TUNED: dict[str, tuple[str, Recipe]] = {
    "Adam": ("", Recipe()),
    "AdamW": ("", Recipe(optimizer="AdamW", weight_decay=0.01)),
    "SGD": ("", SGD),
    "SGD, momentum": ("", replace(SGD, lr=0.02, momentum=0.9)),
    "warm-up 20 %": ("", Recipe(warmup=0.2)),
    "cosine to zero": ("", Recipe(schedule="cosine")),
    "dropout 0.5": ("", Recipe(dropout=0.5)),
    "label smoothing 0.2": ("", Recipe(smoothing=0.2)),
    "80 epochs": ("", Recipe(epochs=80)),
    "validation of 32": ("", Recipe(val=32)),
    "Adam clipped at 0.05": ("", Recipe(clip=0.05)),
    "SGD clipped at 1": ("", replace(SGD, clip=1.0)),
    "6 epochs": ("", Recipe(epochs=6)),
    "batch 8": ("", Recipe(batch=8, epochs=10)),
    "inputs 16 times as large": ("", Recipe(input_scale=16.0)),
    "10 % wrong labels, 15 epochs": ("", Recipe(label_noise=0.1, epochs=15)),
    "60 images": ("overfitting", replace(SMALL, train=60)),
    "100 images": ("overfitting", replace(SMALL, train=100)),
    "100 images, SGD": ("overfitting", replace(SMALL, train=100, optimizer="SGD", lr=0.1)),
    "150 images": ("overfitting", replace(SMALL, train=150)),
    "Adam, lr 0.3": ("instability", Recipe(lr=0.3)),
    "Adam, lr 0.1": ("instability", Recipe(lr=0.1)),
    "SGD, lr 8": ("instability", replace(SGD, lr=8.0)),
    "SGD, lr 2": ("instability", replace(SGD, lr=2.0)),
    "SGD, lr 0.6, momentum 0.98": ("instability", replace(SGD, lr=0.6, momentum=0.98)),
    "SGD, lr 1e-5": ("learning_rate_too_low", replace(SGD, lr=1e-5)),
    "SGD, lr 1e-4": ("learning_rate_too_low", replace(SGD, lr=1e-4)),
    "SGD, lr 1e-3": ("learning_rate_too_low", replace(SGD, lr=1e-3)),
    "Adam, lr 1e-5": ("learning_rate_too_low", Recipe(lr=1e-5)),
    "SGD clipped at 1e-3": ("high_clip_ratio", replace(SGD, clip=1e-3)),
    "SGD clipped at 1e-2": ("high_clip_ratio", replace(SGD, clip=1e-2)),
    "lr to zero after 10 steps": ("schedule_collapse", Recipe(schedule="collapse")),
    "NaN at step 150": ("non_finite", Recipe(nan_at=150)),
    "3 % broken batches, SGD": ("loss_spikes", replace(SGD, bad_batches=0.03)),
}
"""What must be told first (nothing, if empty), and the training."""

HELD_OUT_MODELS: dict[str, tuple[str, Recipe]] = {
    "Adam": ("", Recipe(lr=2e-3)),
    "SGD, momentum": ("", Recipe(optimizer="SGD", lr=0.03, momentum=0.9)),
    "dropout 0.3": ("", Recipe(lr=2e-3, dropout=0.3)),
    "label smoothing 0.2": ("", Recipe(lr=2e-3, smoothing=0.2)),
    "warm-up and cosine": ("", Recipe(lr=3e-3, schedule="cosine", warmup=0.1)),
    "Adam clipped at 0.05": ("", Recipe(lr=2e-3, clip=0.05)),
    "validation of 32": ("", Recipe(lr=2e-3, val=32)),
    "80 images": ("overfitting", Recipe(train=80, width=256, epochs=80, lr=2e-3)),
    "120 images": ("overfitting", Recipe(train=120, width=256, epochs=80, lr=2e-3)),
    "Adam, lr 0.3": ("instability", Recipe(lr=0.3)),
    "SGD, lr 8": ("instability", Recipe(optimizer="SGD", lr=8.0)),
    "SGD, lr 1e-4": ("learning_rate_too_low", Recipe(optimizer="SGD", lr=1e-4)),
    "Adam, lr 3e-6": ("learning_rate_too_low", Recipe(lr=3e-6)),
    "SGD clipped at 1e-3": ("high_clip_ratio", Recipe(optimizer="SGD", lr=0.1, clip=1e-3)),
    "lr to zero after 10 steps": ("schedule_collapse", Recipe(lr=2e-3, schedule="collapse")),
}


def held_out() -> dict[str, tuple[str, Recipe]]:
    """The same trainings with other models on digits, and with the perceptron on MNIST images."""
    worlds = {
        "convolution": {"model": "cnn", "epochs": 15},
        "attention": {"model": "attention", "epochs": 20},
        "tanh": {"model": "tanh", "epochs": 30},
        "MNIST": {"data": "mnist", "epochs": 10, "train": 3000, "val": 1000},
    }
    found = {}
    for world, changes in worlds.items():
        for name, (rule, recipe) in HELD_OUT_MODELS.items():
            own = {"train", "epochs"} if recipe.train != Recipe().train else set()
            own |= {"val"} if recipe.val != Recipe().val else set()
            changed = {k: v for k, v in changes.items() if k not in own}
            found[f"{world}: {name}"] = rule, replace(recipe, **changed)
    return found


def rate(count: int, n: int) -> str:
    """A rate with its 95 % interval."""
    low, high = wilson(count, n)
    return f"{count}/{n} | {low:.3f} to {high:.3f}"


def told(telemetries: Sequence[Telemetry]) -> list[str]:
    """Names of the findings, the first one first."""
    return [finding.rule for finding in diagnose(telemetries)]


def synthetic_healthy(draws: int) -> Iterator[str]:
    yield "| healthy look-alike | false alarms | 95 % interval | rules |"
    yield "|---|---|---|---|"
    total = 0
    for k, (name, draw) in enumerate(HEALTHY.items()):
        found = [told([draw(np.random.default_rng((k, i)))]) for i in range(draws)]
        alarms = sum(map(bool, found))
        total += alarms
        yield f"| {name} | {rate(alarms, draws)} | {counted(found)} |"
    yield f"| **all** | {rate(total, draws * len(HEALTHY))} | |"


def synthetic_faults(draws: int) -> Iterator[str]:
    yield "| fault | strength | told first | 95 % interval | all that was told |"
    yield "|---|---|---|---|---|"
    for k, (name, draw) in enumerate(FAULTS.items()):
        for strength in STRENGTHS:
            rngs = [np.random.default_rng((100 + k, i)) for i in range(draws)]
            found = [told([draw(rng, strength)]) for rng in rngs]
            right = sum(f[:1] == [name] for f in found)
            yield f"| {name} | {strength} | {rate(right, draws)} | {counted(found)} |"


def real(scenarios: dict[str, tuple[str, Recipe]]) -> Iterator[str]:
    yield "| training | must be told | told in single seeds | told of 5 seeds |"
    yield "|---|---|---|---|"
    seeds, alarms, hits = Counter[str](), Counter[str](), Counter[str]()
    for name, (rule, recipe) in scenarios.items():
        traces = [trace(recipe, seed) for seed in range(SEEDS)]
        single, together = [told([t]) for t in traces], told(traces)
        kind = "faulty" if rule else "healthy"
        seeds[kind] += SEEDS
        seeds[f"{kind} of 5"] += 1
        alarms["healthy"] += sum(map(bool, single)) if not rule else 0
        alarms["healthy of 5"] += bool(together) and not rule
        hits["faulty"] += sum(f[:1] == [rule] for f in single)
        hits["faulty of 5"] += together[:1] == [rule]
        yield f"| {name} | {rule or '-'} | {counted(single)} | {', '.join(together) or '-'} |"
    yield ""
    yield "| | | 95 % interval |"
    yield "|---|---|---|"
    for kind, what in (("healthy", alarms), ("faulty", hits)):
        event = "false alarms" if kind == "healthy" else "right cause first"
        yield f"| {event}, single seeds | {rate(what[kind], seeds[kind])} |"
        yield f"| {event}, 5 seeds | {rate(what[f'{kind} of 5'], seeds[f'{kind} of 5'])} |"


def counted(found: Sequence[Sequence[str]]) -> str:
    """How often each rule was told."""
    counts = Counter(rule for rules in found for rule in rules)
    return ", ".join(f"{rule} {n}" for rule, n in counts.most_common()) or "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200, help="per look-alike")
    parser.add_argument("--real", action="store_true", help="also train: 20 minutes on one core")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tables = {
        f"Synthetic look-alikes, {arguments.draws} each": synthetic_healthy(arguments.draws),
        f"Synthetic faults, {arguments.draws // 2} each": synthetic_faults(arguments.draws // 2),
    }
    if arguments.real:
        tables["Real trainings, tuned"] = real(TUNED)
        tables["Real trainings, held out"] = real(held_out())
    for title, lines in tables.items():
        print(f"\n## {title}\n", flush=True)
        for line in lines:
            print(line, flush=True)


if __name__ == "__main__":
    main()
