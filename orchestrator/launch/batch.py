"""Trials -> Outcomes: one Hydra batch for all, then each accident alone, until attempts are used.

What the launcher returns or raises is not believed: with several launchers one killed job takes the
results of the others with it. The files in the trials' folders are the truth.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from orchestrator.errors import OrchestratorError, nearest
from orchestrator.launch import host, sources
from orchestrator.launch.compose import hydra_aside, hydra_override
from orchestrator.launch.files import Job, TrialFiles
from orchestrator.nouns import Campaign, Outcome, Scalar, Status, Trial

CONFIG = "orchestrator_trial"  # name of the config that all jobs of a batch are composed from
POLL_SECONDS = 0.1
WORKERS_KEY = {
    "isolated": "workers",
    "joblib": "n_jobs",
    "ray": "ray.init.num_cpus",
    "submitit_slurm": "array_parallelism",
}
"""Each launcher's own word for how many jobs run at once; submitit_local has none."""
OTHER_SETTINGS: dict[str, dict[str, Scalar]] = {"ray": {"ray.remote.max_retries": 0}}
"""Retries are ours: they are counted, and the last reason is kept."""
WHOLE_MACHINE = ("basic", "submitit_slurm")  # a job has all the cores it sees for itself

OnOutcome = Callable[[Trial, Outcome], None]


def read_outcome(trial: Trial) -> Outcome | None:
    """The outcome recorded in the trial's folder, or None while there is none."""
    return TrialFiles(trial.folder).read_outcome()


def launch(
    campaign: Campaign, trials: Sequence[Trial], *, on_outcome: OnOutcome
) -> dict[str, Outcome]:
    """The outcome of every trial, by identity: read where it is recorded, otherwise run for.

    `on_outcome` is called once per trial as soon as its outcome is final: a result, or an accident
    that used up its attempts. While trials run it is called from a thread of ours, one call at a
    time, with the caller waiting here; what it raises is raised here when the batch is through.
    """
    different = {trial.identity: trial for trial in trials}
    for trial in different.values():
        _settle_half_attempt(campaign, trial)
    watcher = _Watcher(campaign, different.values(), on_outcome)
    watcher.look()
    pending = watcher.pending()
    if pending:
        with watcher.watching():
            _start(campaign, pending)
            for trial in pending:
                _start_again(campaign, trial)
        watcher.look()
    for trial in watcher.pending():  # never begun: the launcher could not
        watcher.give_up(trial)
    return watcher.outcomes


def _is_final(campaign: Campaign, outcome: Outcome) -> bool:
    return outcome.status.is_result or outcome.attempts >= campaign.budget.attempts


def _start_again(campaign: Campaign, trial: Trial) -> None:
    """Launch a trial alone until its outcome is final, as often as it may be attempted at most."""
    for _ in range(campaign.budget.attempts):
        outcome = read_outcome(trial)
        if outcome is not None and _is_final(campaign, outcome):
            return
        _start(campaign, [trial])


def _settle_half_attempt(campaign: Campaign, trial: Trial) -> None:
    """Judge an attempt whose launching process ended before it could.

    In that same process the trial may have been the cause, and is not begun for ever; otherwise the
    attempt is given back.
    """
    files = TrialFiles(trial.folder)
    count = files.count_attempts()
    if files.outcome.exists() or not count:
        return
    is_in_process = campaign.launcher == "basic" or (
        campaign.launcher == "joblib" and campaign.workers == 1
    )
    if not is_in_process:
        files.set_attempts(count - 1)
    elif count >= campaign.budget.attempts:
        _lose(trial, "it ended without a record, and so did the process that launched it")


def _lose(trial: Trial, reason: str) -> None:
    files = TrialFiles(trial.folder)
    attempts = files.count_attempts()
    files.write_outcome(Outcome(trial.identity, Status.LOST, {}, 0.0, attempts, reason))


class _Watcher:
    """Tells of each outcome once it is on disk and final, whatever the launcher."""

    def __init__(self, campaign: Campaign, trials: Iterable[Trial], tell: OnOutcome) -> None:
        self.campaign = campaign
        self.outcomes: dict[str, Outcome] = {}
        self._trials = list(trials)
        self._tell = tell
        self._enough = threading.Event()
        self._error: BaseException | None = None

    def pending(self) -> list[Trial]:
        """Trials that have not been told of."""
        return [trial for trial in self._trials if trial.identity not in self.outcomes]

    def look(self) -> None:
        """Tell of what is final and was not told yet."""
        for trial in self.pending():
            outcome = read_outcome(trial)
            if outcome is not None and _is_final(self.campaign, outcome):
                self.outcomes[trial.identity] = outcome
                self._tell(trial, outcome)

    def give_up(self, trial: Trial) -> None:
        """Tell of the last accident of a trial that never used up its attempts."""
        outcome = read_outcome(trial)
        assert outcome is not None, "every launch leaves an outcome"
        self.outcomes[trial.identity] = outcome
        self._tell(trial, outcome)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look again and again, from a thread, while the block runs."""
        thread = threading.Thread(target=self._watch, name="trial watcher", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._enough.set()
            thread.join()
        if self._error is not None:
            raise self._error

    def _watch(self) -> None:
        try:
            while not self._enough.wait(POLL_SECONDS):
                self.look()
        except BaseException as error:  # handed to the caller's thread
            self._error = error


# --- one batch through Hydra --------------------------------------------------------------------


def _start(campaign: Campaign, trials: Sequence[Trial]) -> None:
    """Run `trials` in one batch; when this returns, each has an outcome on disk.

    An interrupt gives the attempts back that it cut short.
    """
    files = [TrialFiles(trial.folder) for trial in trials]
    for trial, its in zip(trials, files, strict=True):
        its.prepare(_job(campaign, trial))
    before = [its.count_attempts() for its in files]
    reason = "it ended without a record"
    with _launcher(campaign) as launcher:
        try:
            launcher.launch([_overrides(campaign, trial) for trial in trials], 0)
        except KeyboardInterrupt:
            for its, count in zip(files, before, strict=True):
                if not its.outcome.exists():
                    its.set_attempts(count)
            raise
        except Exception as error:  # any launcher, any reason: what matters is what is on disk
            said = f"launcher {campaign.launcher!r} said {type(error).__name__}: {error}"
            if before == [its.count_attempts() for its in files]:
                raise OrchestratorError(
                    f"no trial was begun: {said}",
                    "see that the launcher works here, or take hydra/launcher=isolated",
                ) from error
            reason += f"; {said}"
    for trial, its in zip(trials, files, strict=True):
        if not its.outcome.exists():
            _lose(trial, reason)


def _job(campaign: Campaign, trial: Trial) -> Job:
    limit = 60 * campaign.budget.trial_minutes
    is_ours = campaign.launcher != "isolated" and math.isfinite(limit)
    return Job(
        trial=trial,
        training=campaign.training,
        metric=campaign.metric.name,
        workers=1 if campaign.launcher in WHOLE_MACHINE else campaign.workers,
        limit_seconds=limit if is_ours else None,
        level=campaign.monitor.level.value,
        every=campaign.monitor.every,
        histograms=campaign.monitor.histograms,
    )


def _overrides(campaign: Campaign, trial: Trial) -> list[str]:
    """The job's own overrides, each spelled so that Hydra reads back the value meant."""
    folder = Path(trial.folder)
    return [
        *(hydra_override(key, value) for key, value in trial.overrides),
        # The program may not have asked for a seed in its config; it gets one.
        f"++{hydra_override(campaign.training.seed_key, trial.seed)}",
        hydra_override("hydra.sweep.dir", str(folder.parent)),
        hydra_override("hydra.sweep.subdir", folder.name),
    ]


@contextmanager
def _launcher(campaign: Campaign) -> Iterator[Launcher]:
    """The campaign's Hydra launcher, set up to run our host; mistakes in its settings are told."""
    folder = Path(campaign.folder, "launch")
    folder.mkdir(parents=True, exist_ok=True)
    config = OmegaConf.to_yaml(OmegaConf.create(campaign.training.config), resolve=False)
    (folder / f"{CONFIG}.yaml").write_text(config, encoding="utf-8")
    with hydra_aside(), initialize_config_dir(str(folder), version_base="1.3", job_name=CONFIG):
        loader = GlobalHydra.instance().config_loader()
        known = loader.get_group_options("hydra/launcher")
        if campaign.launcher not in known:
            raise OrchestratorError(
                f"hydra/launcher={campaign.launcher}: no such launcher is installed.",
                nearest(campaign.launcher, known),
            )
        tokens = _launcher_overrides(campaign)
        try:
            master = compose(CONFIG, overrides=tokens, return_hydra_config=True)
            launcher = Plugins.instance().instantiate_launcher(
                hydra_context=HydraContext(config_loader=loader, callbacks=Callbacks()),
                task_function=host.run,
                config=master,
            )
        except (HydraException, OmegaConfBaseException) as error:
            text = " ".join(str(error.__cause__ or error).split())
            raise OrchestratorError(
                f"launcher {campaign.launcher} with {list(campaign.launcher_overrides)}: {text}",
                "mend the hydra.launcher... override",
            ) from None
        yield launcher


def _launcher_overrides(campaign: Campaign) -> list[str]:
    """What all jobs of a batch share: where they run, and that Hydra leaves logging alone."""
    settings = dict(OTHER_SETTINGS.get(campaign.launcher, {}))
    if campaign.launcher in WORKERS_KEY:
        settings[WORKERS_KEY[campaign.launcher]] = campaign.workers
    if campaign.launcher == "isolated":
        settings["timeout_seconds"] = 60 * campaign.budget.trial_minutes
    tokens = [f"++hydra.launcher.{hydra_override(key, value)}" for key, value in settings.items()]
    if campaign.launcher == "isolated":
        names = ",".join(sources.installed(campaign.training))  # dotted names need no quotes
        tokens.append(f"hydra.launcher.preload=[{names}]")
    return [
        f"hydra/launcher={campaign.launcher}",
        "hydra/hydra_logging=none",
        "hydra/job_logging=none",
        "hydra.output_subdir=null",
        hydra_override("hydra.sweep.dir", str(Path(campaign.folder, "trials"))),
        *tokens,
        *campaign.launcher_overrides,
    ]
