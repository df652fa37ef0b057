"""A campaign as its ledger would tell it, built by hand: what the report and the tracker are shown.

`finished()` holds everything once: two ablations (one with a diverged trial, one with a trial that
failed), an adopted confirmation, a second round without a finding, and a headline with the test
split.
`baseline_only()` is the same campaign in its first stage, `healthy()` one that found nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import statistics
from pathlib import Path

import numpy as np
import yaml

from orchestrator.nouns import (
    Ablation,
    AblationResult,
    Arm,
    Budget,
    Call,
    Campaign,
    Comparison,
    Comparisons,
    Confirmation,
    Direction,
    Factor,
    Finding,
    Headline,
    Hypothesis,
    Interval,
    Metric,
    Move,
    Outcome,
    Plan,
    Protocol,
    Record,
    Round,
    Scalar,
    Scale,
    Series,
    Status,
    Support,
    Telemetry,
    Training,
    Trial,
    Verdict,
)

METRIC = Metric("val/loss", Direction.MIN, "nat", delta=0.02, test_name="test/loss")
GAP = Metric("generalisation_gap", Direction.MIN, "nat")
CONFIG = {
    "optimizer": {"lr": 1e-3, "weight_decay": 0.0},
    "model": {"width": 512, "dropout": 0.0},
    "seed": 0,
}
WEIGHT_DECAY = Factor("weight_decay", "optimizer.weight_decay", 0.0, scale=Scale.LOG)
DROPOUT = Factor("dropout", "model.dropout", 0.0)
LEVEL_EFFECT = {  # arm -> what the level does to val/loss, nat
    "baseline": 0.0,
    "weight_decay=0.001": -0.015,
    "weight_decay=0.01": -0.09,
    "weight_decay=0.1": -0.17,
    "weight_decay=1.0": 0.21,
    "dropout=0.2": -0.05,
    "dropout=0.5": -0.11,
}
STARTED = 1_790_000_000.0


def campaign(folder: Path) -> Campaign:
    return Campaign(
        name="digits-overfitting",
        folder=str(folder),
        training=Training(
            kind="call",
            target="train.main",
            config=yaml.safe_dump(CONFIG),
            seed_key="seed",
            folder=str(folder),
            code="9f3a51c07b21",
            data="digits, 300 training images",
        ),
        factors=(WEIGHT_DECAY, DROPOUT),
        metric=METRIC,
        budget=Budget(rounds=2, trials=120, trial_minutes=2.0, attempts=2),
        protocol=Protocol(
            alpha=0.05,
            looks=(5,),
            confirm_seeds=6,
            headline_seeds=6,
            max_ablations=4,
            max_hypotheses=2,
        ),
        workers=2,
    )


def arm(name: str, *overrides: tuple[str, Scalar]) -> Arm:
    config = json.loads(json.dumps({k: v for k, v in CONFIG.items() if k != "seed"}))
    for key, value in overrides:
        section, leaf = key.split(".")
        config[section][leaf] = value
    return Arm(name, tuple(sorted(overrides)), json.dumps(config, sort_keys=True))


BASELINE = arm("baseline")
WEIGHT_DECAY_ARMS = tuple(
    arm(f"weight_decay={v}", ("optimizer.weight_decay", v)) for v in (0.001, 0.01, 0.1, 1.0)
)
DROPOUT_ARMS = tuple(arm(f"dropout={v}", ("model.dropout", v)) for v in (0.2, 0.5))
WINNER = WEIGHT_DECAY_ARMS[2]
ROUND_2_BASELINE = dataclasses.replace(WINNER, name="baseline")
SCREEN_SEEDS = (0, 1, 2, 3, 4)
CONFIRM_SEEDS = (10, 11, 12, 13, 14, 15)
ROUND_2_SEEDS = (20, 21, 22, 23, 24)
HEADLINE_SEEDS = (30, 31, 32, 33, 34, 35)

OVERFITTING = Finding(
    rule="overfitting",
    severity=0.8,
    summary="validation loss rises from step 240 while the train probe still falls",
    steps=(240, 760),
    evidence={"gap": 0.41, "gap_at_minimum": 0.12, "evaluations_since_minimum": 13.0},
    confounders=("validation set too small (SE 0.02)", "train loss measured with dropout on"),
    consequences=("over_confidence",),
    seeds_fired=5,
    seeds_seen=5,
)
MORE_WEIGHT_DECAY = Hypothesis(
    finding="overfitting",
    factor="weight_decay",
    move=Move.UP,
    claim="more weight decay lowers val/loss and narrows the gap to the train probe",
    why="the weights grow while validation loss rises",
    signal="generalisation_gap",
    signal_move=Move.DOWN,
)
MORE_DROPOUT = dataclasses.replace(
    MORE_WEIGHT_DECAY,
    factor="dropout",
    claim="more dropout lowers val/loss and narrows the gap to the train probe",
    why="units co-adapt on few samples",
)
WEIGHT_DECAY_ABLATION = Ablation("weight_decay", MORE_WEIGHT_DECAY, WEIGHT_DECAY, WEIGHT_DECAY_ARMS)
DROPOUT_ABLATION = Ablation("dropout", MORE_DROPOUT, DROPOUT, DROPOUT_ARMS)


def score(a: Arm, seed: int, split: str = "val") -> float:
    """Loss of one run, nat: seed and arm effects plus noise, all drawn from the seed itself."""
    effect = LEVEL_EFFECT["weight_decay=0.1" if a == ROUND_2_BASELINE else a.name]
    shared = np.random.default_rng([7, seed]).normal(0, 0.02)
    own = np.random.default_rng([8, seed, *a.config.encode()]).normal(0, 0.025)
    return float(0.62 + (0.03 if split == "test" else 0.0) + effect + shared + own)


def status_of(a: Arm, seed: int) -> Status:
    if (a.name, seed) == ("weight_decay=1.0", 3):
        return Status.DIVERGED
    if (a.name, seed) == ("dropout=0.5", 2):
        return Status.FAILED
    return Status.DONE


def trial(a: Arm, seed: int, folder: Path, started: float) -> tuple[Trial, Outcome]:
    config = json.dumps(json.loads(a.config) | {"seed": seed}, sort_keys=True)
    identity = hashlib.sha256(config.encode()).hexdigest()[:16]
    status = status_of(a, seed)
    metrics = {"val/loss": score(a, seed), "test/loss": score(a, seed, "test")}
    reasons = {
        Status.DIVERGED: "val/loss is nan from step 310",
        Status.FAILED: "RuntimeError: DataLoader worker exited unexpectedly",
    }
    return Trial(
        identity, a.name, seed, a.overrides, config, str(folder / "trials" / identity)
    ), Outcome(
        identity,
        status,
        metrics if status is Status.DONE else {},
        seconds=4.0 + (0.2 if a.overrides else 0.0),
        attempts=2 if status is Status.FAILED else 1,
        reason=reasons.get(status, ""),
        started=started,
    )


def compared(
    metric: Metric, arms: tuple[Arm, ...], seeds: tuple[int, ...], base: Arm, alpha: float
) -> Comparisons:
    """Paired differences with a made-up critical value: consistent, not the real statistics."""
    critical, split = 2.4, "test" if metric.name == "test/loss" else "val"

    def runs(a: Arm) -> dict[int, float]:
        return {s: score(a, s, split) for s in seeds if status_of(a, s) is Status.DONE}

    control, comparisons = runs(base), []
    for a in arms:
        own = runs(a)
        differences = [control[s] - own[s] for s in seeds if s in own]
        n, mean = len(differences), statistics.mean(differences)
        se = 0.05 / math.sqrt(n)
        p = statistics.NormalDist().cdf(-mean / se)
        diverged = sum(status_of(a, s) is Status.DIVERGED for s in seeds)
        comparisons.append(
            Comparison(
                arm=a.name,
                n_pairs=n,
                n_diverged=diverged,
                n_only_arm_diverged=diverged,
                n_only_baseline_diverged=0,
                mean=statistics.mean(own.values()),
                mean_difference=mean,
                se=se,
                t=mean / se,
                p_better=p,
                p_worse=1 - p,
                p_exact_better=0.031 if n == len(seeds) and mean > 0 else None,
                p_exact_worse=1.0 if n == len(seeds) else None,
                interval=Interval(mean - critical * se, mean + critical * se),
                p_equivalent=0.4,
                hedges_g=mean / 0.05,
                glass_delta=mean / 0.04,
                probability_superior=0.96 if mean > 0 else 0.1,
                pooled=diverged == 0,
                worst_seed_difference=min(differences),
                flags=("fragile",) if n < len(seeds) else (),
                sd=statistics.stdev(own.values()),
            )
        )
    return Comparisons(
        metric=metric,
        alpha=alpha,
        k=len(arms),
        n=len(seeds),
        nu=float(len(arms) * (len(seeds) - 1)),
        sigma=0.035,
        critical_value=critical,
        seed_correlation=0.31,
        baseline_mean=statistics.mean(control.values()),
        baseline_sd=statistics.stdev(control.values()),
        baseline_n=len(control),
        arms=tuple(comparisons),
    )


def result(ablation: Ablation, calls: dict[str, Call], candidate: str) -> AblationResult:
    comparisons = compared(METRIC, ablation.arms, SCREEN_SEEDS, BASELINE, alpha=0.05)
    by_gain = sorted(comparisons.arms, key=lambda c: -c.mean_difference)
    verdicts = tuple(
        Verdict(
            a.name,
            calls[a.name],
            reason=f"{calls[a.name].value}, as the interval says",
            next_act="more seeds" if calls[a.name] is Call.INCONCLUSIVE else "nothing",
            seeds_needed=(4, 9) if calls[a.name] is Call.INCONCLUSIVE else None,
            is_candidate=a.name == candidate,
        )
        for a in ablation.arms
    )
    return AblationResult(
        ablation=ablation.name,
        comparisons=comparisons,
        mechanism=compared(GAP, ablation.arms, SCREEN_SEEDS, BASELINE, alpha=0.05),
        verdicts=verdicts,
        support=Support.SUPPORTED,
        support_reason="val/loss fell and the gap narrowed, as predicted",
        ranking=tuple(c.arm for c in by_gain),
    )


def results() -> tuple[AblationResult, AblationResult]:
    return (
        result(
            WEIGHT_DECAY_ABLATION,
            {
                "weight_decay=0.001": Call.INCONCLUSIVE,
                "weight_decay=0.01": Call.BETTER,
                "weight_decay=0.1": Call.BETTER,
                "weight_decay=1.0": Call.WORSE,
            },
            candidate="weight_decay=0.1",
        ),
        result(
            DROPOUT_ABLATION,
            {"dropout=0.2": Call.INCONCLUSIVE, "dropout=0.5": Call.BETTER},
            candidate="dropout=0.5",
        ),
    )


def plan() -> Plan:
    return Plan(
        round=1,
        baseline=BASELINE,
        ablations=(WEIGHT_DECAY_ABLATION, DROPOUT_ABLATION),
        seeds=SCREEN_SEEDS,
        confirm_seeds=CONFIRM_SEEDS,
        alpha=0.05,
        alpha_screen=0.25,
        notes=("5 seeds detect a difference of 0.07 nat with power 0.8",),
    )


def confirmation() -> Confirmation:
    return Confirmation(
        ablation="weight_decay",
        arm=WINNER,
        baseline=BASELINE,
        seeds=CONFIRM_SEEDS,
        comparisons=compared(METRIC, (WINNER,), CONFIRM_SEEDS, BASELINE, alpha=0.05),
        adopted=True,
        reason="p <= 0.05 on 6 fresh seeds",
    )


def headline() -> Headline:
    test = dataclasses.replace(METRIC, name="test/loss", test_name=None)
    pair = (ROUND_2_BASELINE,)
    return Headline(
        original=BASELINE,
        final=ROUND_2_BASELINE,
        seeds=HEADLINE_SEEDS,
        validation=compared(METRIC, pair, HEADLINE_SEEDS, BASELINE, alpha=0.05),
        test=compared(test, pair, HEADLINE_SEEDS, BASELINE, alpha=0.05),
    )


Group = tuple[tuple[Arm, ...], tuple[int, ...]]
"""Arms that ran together, seed by seed."""


def record(
    folder: Path,
    rounds: tuple[Round, ...],
    groups: list[Group],
    last: Headline | None = None,
    ending: str = "",
) -> Record:
    runs = [(a, s) for arms, seeds in groups for s in seeds for a in arms]
    pairs = [trial(a, s, folder, STARTED + 5.0 * n) for n, (a, s) in enumerate(runs)]
    return Record(
        campaign=campaign(folder),
        rounds=rounds,
        trials={t.identity: t for t, _ in pairs},
        outcomes={o.identity: o for _, o in pairs},
        headline=last,
        ending=ending,
    )


def finished(folder: Path) -> Record:
    first = Round(
        number=1,
        baseline=BASELINE,
        seeds=SCREEN_SEEDS,
        findings=(OVERFITTING,),
        hypotheses=(MORE_WEIGHT_DECAY, MORE_DROPOUT),
        untestable=("overfitting: early stopping is not among the declared factors",),
        plan=plan(),
        results=results(),
        confirmation=confirmation(),
    )
    second = Round(number=2, baseline=ROUND_2_BASELINE, seeds=ROUND_2_SEEDS)
    groups: list[Group] = [
        ((BASELINE,), SCREEN_SEEDS),
        ((*WEIGHT_DECAY_ARMS, *DROPOUT_ARMS), SCREEN_SEEDS),
        ((BASELINE, WINNER), CONFIRM_SEEDS),
        ((ROUND_2_BASELINE,), ROUND_2_SEEDS),
        ((BASELINE, ROUND_2_BASELINE), HEADLINE_SEEDS),
    ]
    return record(
        folder,
        (first, second),
        groups,
        headline(),
        "no finding is left in round 2",
    )


def planned(folder: Path) -> Record:
    first = Round(
        number=1,
        baseline=BASELINE,
        seeds=SCREEN_SEEDS,
        findings=(OVERFITTING,),
        hypotheses=(MORE_WEIGHT_DECAY, MORE_DROPOUT),
        plan=plan(),
    )
    return record(folder, (first,), [((BASELINE,), SCREEN_SEEDS), ((WINNER,), (0, 1))])


def baseline_only(folder: Path) -> Record:
    return record(folder, (Round(1, BASELINE, SCREEN_SEEDS),), [((BASELINE,), (0, 1))])


def healthy(folder: Path) -> Record:
    return record(
        folder,
        (Round(1, BASELINE, SCREEN_SEEDS),),
        [((BASELINE,), SCREEN_SEEDS)],
        ending="the baseline shows no finding",
    )


def telemetry(t: Trial) -> Telemetry | None:
    """Curves that overfit less the better the arm; a diverged run stops at step 310 with NaN."""
    steps = np.arange(1, 801, dtype=np.int64)
    rng = np.random.default_rng([9, t.seed, *t.config.encode()])
    decay = dict(t.overrides).get("optimizer.weight_decay", 0.0)
    rise = 0.0004 if not t.overrides else 0.00012 if decay == 0.1 else 0.0003
    probe = 2.2 * np.exp(-steps / 130) + 0.05
    train = probe + np.abs(rng.normal(0, 0.06, len(steps)))
    val = probe + 0.25 + rise * steps + 0.02 * rng.normal()
    if (t.arm, t.seed) == ("weight_decay=1.0", 3):
        steps, train = steps[:310], np.append(train[:309], np.nan)
        probe, val = probe[:310], val[:310]
    every = slice(19, None, 20)
    norm = np.abs(rng.normal(1.5, 0.4, len(steps)))
    return Telemetry(
        {
            "train/loss": Series(steps, train, "nat"),
            "probe/loss": Series(steps[every], probe[every], "nat"),
            "val/loss": Series(steps[every], val[every], "nat"),
            "lr": Series(steps, np.full(len(steps), 1e-3), "1"),
            "grad_norm": Series(steps, norm, "1"),
            "update_ratio/fc1": Series(steps[every], norm[every] * 1e-3, "1"),
        },
        {"optimizer": "AdamW", "steps": int(steps[-1]), "weight_layers": "fc1"},
    )
