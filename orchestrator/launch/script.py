"""Runs an unmodified Hydra app in this process, and watches it through an injected callback."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

from hydra.core.global_hydra import GlobalHydra
from hydra.core.utils import JobReturn
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from orchestrator.errors import OrchestratorError, collect
from orchestrator.launch.compose import canonical, hydra_aside, hydra_override
from orchestrator.nouns import Overrides, Training


class Listener(Protocol):
    """What is told of the app's job; raising BaseException in `started` stops the app."""

    def started(self, config: DictConfig) -> None:
        """The app's config, `hydra` included, before its own function is called."""

    def ended(self, job: JobReturn) -> None:
        """What the app's own function returned or raised."""


_listener: ContextVar[Listener] = ContextVar("listener")


class Relay(Callback):
    """The callback injected into the app; it hands on to the Listener of this process."""

    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        """Hand on the config."""
        _listener.get().started(config)

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: Any) -> None:  # noqa: ARG002
        """Hand on the result."""
        _listener.get().ended(job_return)


def run(script: Path, overrides: Sequence[str], output: Path, listener: Listener) -> None:
    """Run the app in `script` as `python script overrides...` would, with `output` for its job."""
    relay = f"{Relay.__module__}.{Relay.__name__}"
    sys.argv = [
        str(script),
        *overrides,
        "hydra.mode=RUN",
        hydra_override("hydra.run.dir", str(output)),
        f"+hydra.callbacks.orchestrator._target_={relay}",
    ]
    sys.path.insert(0, str(script.parent))
    # Without it Hydra prints a job's exception and exits, and the exception itself is lost.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    token = _listener.set(listener)
    try:
        with hydra_aside():
            runpy.run_path(str(script), run_name="__main__")
    finally:
        _listener.reset(token)


def plain(config: DictConfig) -> DictConfig:
    """The app's own config, without Hydra's section."""
    own = config.copy()
    with open_dict(own):
        own.pop("hydra")
    return own


# --- rehearsal: what the app would run with -----------------------------------------------------


def baseline_config(training: Training) -> str:
    """The app's own config as YAML text, interpolations unresolved."""
    return str(_rehearse(training, [])["config"])


def resolve_script(training: Training, overrides: Sequence[Overrides]) -> tuple[str, ...]:
    """The canonical config that the app composes for each override tuple."""
    composed = _rehearse(training, overrides)["composed"]
    collect(
        OrchestratorError(
            f"{training.target} refuses {dict(each)}: {found['error']}", "mend the value"
        )
        for each, found in zip(overrides, composed, strict=True)
        if "error" in found
    )
    return tuple(found["config"] for found in composed)


def _rehearse(training: Training, overrides: Sequence[Overrides]) -> dict[str, Any]:
    """Run the app up to its own function in a process of its own, and compose there.

    Only there are the resolvers and schemas that the app registers known; one run does for all
    arms, and goes through the same composition as the trials will.
    """
    tokens = [[hydra_override(key, value) for key, value in each] for each in overrides]
    request = {
        "path": sys.path,
        "script": str(Path(training.folder) / training.target),
        "folder": training.folder,
        "seed_key": training.seed_key,
        "overrides": tokens,
    }
    code = "import json, sys; request = json.load(sys.stdin); sys.path[:] = request['path']; "
    code += f"from {__name__} import rehearse; rehearse(request, sys.argv[1])"
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        ended = subprocess.run(
            [sys.executable, "-c", code, str(answer)],
            input=json.dumps(request),
            capture_output=True,
            text=True,
        )
        if answer.exists():
            composed: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
            return composed
    said = ended.stderr.strip().splitlines() or ["it never called a function under @hydra.main"]
    raise OrchestratorError(
        f"{training.target} did not get as far as its own function: {said[-1]}",
        f"see that `python {training.target} --cfg job` works",
    )


class _Enough(BaseException):
    """Ends a rehearsal."""


class _Rehearsal:
    """Composes the app's config under each set of overrides, inside the app's process."""

    def __init__(self, request: dict[str, Any], answer: Path) -> None:
        self.request = request
        self.answer = answer

    def started(self, config: DictConfig) -> None:
        """Answer with the unresolved config, and the canonical one under each set of overrides."""
        composed = [self._compose(config, tokens) for tokens in self.request["overrides"]]
        own = OmegaConf.to_yaml(plain(config), resolve=False)
        self.answer.write_text(json.dumps({"config": own, "composed": composed}), encoding="utf-8")
        raise _Enough

    def ended(self, job: JobReturn) -> None:
        """Never happens: no job is run."""

    def _compose(self, config: DictConfig, tokens: list[str]) -> dict[str, str]:
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        try:
            composed = hydra.compose_config(
                config_name=config.hydra.job.config_name,
                overrides=tokens,
                run_mode=RunMode.RUN,
                from_shell=False,
                with_log_configuration=False,
            )
            return {"config": canonical(plain(composed), self.request["seed_key"])}
        except (HydraException, OmegaConfBaseException) as error:
            return {"error": " ".join(str(error.__cause__ or error).split())}


def rehearse(request: dict[str, Any], answer: str) -> None:
    """What the rehearsing process does."""
    sys.path.insert(0, request["folder"])
    with tempfile.TemporaryDirectory() as output:
        listener = _Rehearsal(request, Path(answer))
        try:
            run(Path(request["script"]), [], Path(output), listener)
        except _Enough:
            return
