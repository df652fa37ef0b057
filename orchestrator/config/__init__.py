"""exp.yaml and command-line tokens -> Campaign: the only room that knows the user's keys.

Every mistake that can be found without running anything is found here, and all are told at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from orchestrator import nouns
from orchestrator.config.checks import illegal_values, missing_values, unknown_asked
from orchestrator.config.compose import Tokens, composed, parse_tokens
from orchestrator.config.factors import read_factors
from orchestrator.errors import OrchestratorError, collect, nearest

__all__ = ["Tokens", "parse_tokens", "read", "whereabouts"]


def read(
    tokens: Tokens,
    *,
    complete: Callable[[nouns.Training], nouns.Training],
) -> nouns.Campaign:
    """The Campaign that exp.yaml and the overrides describe.

    `complete` fills in what only the launcher can know: a script's own config and the fingerprint
    of the code.
    """
    config = composed(tokens)
    collect(missing_values(config))
    folder = tokens.conf.parent
    training = _training(config, folder)
    training = complete(training)
    factors, mistakes = read_factors(config.factors, training)
    metric = nouns.Metric(
        name=config.metric.name,
        direction=nouns.Direction(config.metric.direction.value),
        unit=config.metric.unit,
        delta=config.metric.delta,
        resolution=config.metric.resolution,
        test_name=config.metric.test,
    )
    given = {str(k): v for k, v in config.protocol.items()}
    given["looks"], given["policy"] = tuple(given["looks"]), nouns.Policy(given["policy"].value)
    protocol = nouns.Protocol(**given)
    budget = nouns.Budget(**{str(k): v for k, v in config.budget.items()})
    collect([*mistakes, *illegal_values(config), *unknown_asked(config)])
    return nouns.Campaign(
        name=config.name,
        folder=str(Path(config.folder).expanduser().resolve()),
        training=training,
        factors=factors,
        metric=metric,
        budget=budget,
        protocol=protocol,
        launcher=config.launcher,
        launcher_overrides=tokens.launcher_overrides,
        workers=config.workers or os.cpu_count() or 1,
        tracking_uri=_absolute_uri(config.tracking_uri),
        skip_rules=tuple(config.skip_rules),
        monitor=nouns.Monitoring(
            nouns.Level(config.monitor.level.value),
            config.monitor.every,
            config.monitor.histograms,
        ),
        ask=tuple(config.ask),
    )


def whereabouts(tokens: Tokens) -> tuple[Path, str | None]:
    """The campaign's folder and its tracking URI, whether or not it was run."""
    config = composed(tokens)
    return Path(config.folder).expanduser().resolve(), _absolute_uri(config.tracking_uri)


def _training(config: DictConfig, folder: Path) -> nouns.Training:
    train = config.train
    kind = "call" if train.call is not None else "script"
    target = train[kind]
    if kind == "script" and not (folder / target).is_file():
        raise OrchestratorError(
            f"train.script={target}: there is no such file in {folder}.",
            nearest(target, [p.name for p in folder.glob("*.py")]),
        )
    if kind == "call" and "." not in target:
        raise OrchestratorError(f"train.call={target}.", "write module.function, as in train.main")
    if kind == "script":
        target = str((folder / target).resolve())
    return nouns.Training(
        kind=kind,
        target=target,
        config=OmegaConf.to_yaml(train.config, resolve=False),
        seed_key=train.seed_key,
        folder=str(folder),
        code="",
        data=train.data,
    )


def _absolute_uri(uri: str | None) -> str | None:
    """A sqlite file's URI with an absolute path, so that it means the same from any folder."""
    if uri is None or not uri.startswith("sqlite:///"):
        return uri
    return f"sqlite:///{Path(uri.removeprefix('sqlite:///')).expanduser().resolve()}"
