"""Values that compose but mean nothing."""

from __future__ import annotations

from collections.abc import Iterator

from omegaconf import DictConfig, OmegaConf

from orchestrator.errors import OrchestratorError, nearest
from orchestrator.nouns import FEWEST_SEEDS


def missing_values(config: DictConfig) -> Iterator[OrchestratorError]:
    """What a campaign cannot do without and the user has not said."""
    # The training's own config is left out: its interpolations mean nothing from our root.
    ours = OmegaConf.masked_copy(config, [str(k) for k in config if k != "train"])
    for key in sorted(OmegaConf.missing_keys(ours)):
        yield OrchestratorError(f"{key} is missing.", f"add it to your campaign file: {key}: ...")
    if (config.train.call is None) == (config.train.script is None):
        yield OrchestratorError(
            f"train.call={config.train.call!r} and train.script={config.train.script!r}.",
            "give exactly one: call: module.function, or script: a Hydra app's file",
        )


def illegal_values(config: DictConfig) -> Iterator[OrchestratorError]:
    """Numbers of the right type that no campaign could be run with."""
    protocol, budget, metric = config.protocol, config.budget, config.metric
    yield from _looks(list(protocol.looks))
    for name in ("confirm_seeds", "headline_seeds"):
        if protocol[name] is not None and protocol[name] < FEWEST_SEEDS:
            yield OrchestratorError(
                f"protocol.{name}={protocol[name]}: fewer than {FEWEST_SEEDS} seeds never give a "
                "verdict.",
                f"set protocol.{name} to {FEWEST_SEEDS} or more",
            )
    if not 0 < protocol.alpha < 0.5:
        yield OrchestratorError(
            f"protocol.alpha={protocol.alpha}.", "choose it in (0, 0.5), 0.05 say"
        )
    if metric.delta is not None and metric.delta <= 0:
        yield OrchestratorError(
            f"metric.delta={metric.delta}.", "give a positive difference, or none"
        )
    if metric.resolution < 0:
        yield OrchestratorError(
            f"metric.resolution={metric.resolution}.", "give 0 or a positive step"
        )
    positive = {f"budget.{k}": v for k, v in budget.items()}
    positive |= {f"protocol.{k}": protocol[k] for k in ("max_ablations", "max_hypotheses")}
    if config.workers is not None:
        positive["workers"] = config.workers
    for key in ("every", "histograms"):
        steps = config.monitor[key]
        if steps is not None and steps < 1:
            yield OrchestratorError(
                f"monitor.{key}={steps}.", "give a number of optimizer steps, 1 or more"
            )
    for key, value in positive.items():
        if value <= 0:
            yield OrchestratorError(f"{key}={value}: nothing could be run.", f"set {key} above 0")
    first = min(protocol.looks, default=0)
    if 0 < budget.trials < first:
        yield OrchestratorError(
            f"budget.trials={budget.trials} does not pay for {first} baseline seeds.",
            "raise budget.trials, or lower the first of protocol.looks",
        )


def unknown_asked(config: DictConfig) -> Iterator[OrchestratorError]:
    """Names under `ask` that are no factors."""
    for name in config.ask:
        if name not in config.factors:
            problem = f"ask={list(config.ask)}: {name} is not mapped under factors."
            yield OrchestratorError(problem, nearest(name, map(str, config.factors)))


def _looks(looks: list[int]) -> Iterator[OrchestratorError]:
    told = f"protocol.looks=[{','.join(map(str, looks))}]"
    if not looks or sorted(set(looks)) != looks:
        yield OrchestratorError(
            f"{told} is not an ascending list of numbers of seeds.",
            "write [3,5,7,10], or one number for a fixed design, [5]",
        )
    if looks and min(looks) < FEWEST_SEEDS:
        yield OrchestratorError(
            f"{told}: fewer than {FEWEST_SEEDS} seeds never give a verdict.",
            f"begin at {FEWEST_SEEDS} seeds or more, as in [3,5,7,10]",
        )
