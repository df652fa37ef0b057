"""`watch` and the monitor it returns: the face that a training program sees."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from orchestrator.errors import OrchestratorError
from orchestrator.monitor import checks, facts
from orchestrator.monitor.clip import over_shards, total_norm
from orchestrator.monitor.evaluation import Loss, batches
from orchestrator.monitor.intake import MicroBatch
from orchestrator.monitor.recorder import Recorder, open_recorders
from orchestrator.telemetry import canonical
from orchestrator.telemetry.layout import FOLDER, FOLDER_VARIABLE

_log = logging.getLogger(__name__)


def watch(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    *,
    level: str | None = None,
    every: int | None = None,
    histograms: int | None = None,
    first_step: int | None = None,
    scaler: GradScaler | None = None,
    folder: Path | None = None,
) -> Monitor:
    """The monitor of a training; it records if this is a trial of a campaign, or `folder` is given.

    `level` is how much it records, off, norms, default or full; `every` is how many optimizer steps
    lie between two measurements of each layer, `histograms` between two histograms, if full. Left
    out, they are what the campaign says in `monitor: {level, every, histograms}`. `first_step` is
    the number of steps that a resumed training has made, if its optimizer does not count them (SGD
    does not, Adam does); left out, SGD with momentum goes on where the telemetry ends. Given the
    `scaler` of a mixed-precision training, its scale and the steps that it skips are recorded, and
    norms are always those of unscaled gradients. Telemetry is written to `telemetry/` in `folder`,
    which is the trial's in a campaign. The training itself is never changed: same weights bit for
    bit, no random number drawn, no error of ours raised into it (recording ends with one warning
    instead). Of a distributed training, rank 0 records.
    """
    optimizers = checks.model_and_optimizers(model, optimizer)
    wanted = checks.monitoring(level, every, histograms, os.environ)
    checks.first_step(first_step)
    checks.grad_scaler(scaler)
    trial = folder or os.environ.get(FOLDER_VARIABLE)
    if not trial or facts.world()[0] != 0:
        return Monitor(model, None)
    place = Path(trial).absolute() / FOLDER
    for other in open_recorders():
        if other.model is model or other.folder == place:
            what = "this model" if other.model is model else f"{place}"
            raise OrchestratorError(
                f"watch: {what} is being recorded by another monitor",
                "close() that one first; for several models give one nn.ModuleList of them and "
                "all their optimizers",
            )
    return Monitor(model, Recorder(model, optimizers, wanted, place, first_step, scaler))


class Monitor:
    """What a training program says to its monitor; where nothing is recorded, it only clips."""

    def __init__(self, model: nn.Module, recorder: Recorder | None) -> None:
        self._model = model
        self._recorder = recorder
        self._names: dict[str, str] = {}
        self._told: set[str] = set()
        self._last_steps: dict[str, int] = {}

    @property
    def recorder(self) -> Recorder | None:
        """What records, for whoever tells it more than this class does; None if nothing does."""
        return self._recorder

    def log(self, step: int | None = None, **metrics: float | Tensor) -> None:
        """Record metrics, as numbers or as tensors of one element, which are not waited for.

        `train_loss=x` and `**{"train/loss": x}` are the same; so for `val`, `test` and `probe`.
        Left out, the step is the number of optimizer steps made; for `train/...` it is the step
        that used the loss, whether it is logged before or after `optimizer.step()`, and several
        values in one step (micro-batches) are averaged. Of other metrics the last one stands.
        A mistake is told once, as a warning, and that value is not recorded.
        """
        for given, value in metrics.items():
            try:
                self._log(given, value, step)
            except OrchestratorError as mistake:
                self._tell(f"log {given}", mistake)

    def batch(
        self,
        id: str | int | None = None,
        *,
        samples: float | Tensor | None = None,
        tokens: float | Tensor | None = None,
    ) -> None:
        """Tell of a micro-batch, before `optimizer.step()`: how much of it counts in the loss.

        Tensors of one element are not waited for. `id` is what finds the batch again; it is kept
        for the steps up to a spike of the gradient norm, or to one that is not finite.
        """
        try:
            told = checks.micro_batch(id, samples, tokens)
        except OrchestratorError as mistake:
            self._tell("batch", mistake)
            told = MicroBatch(None, None, None)
        if self._recorder is not None:
            self._recorder.see_batch(told)

    def probe(self, inputs: object, targets: object = None, *, loss: Loss | None = None) -> None:
        """Look at the model on a fixed part of the train set, where validation is measured.

        Records `probe/loss`, `probe/accuracy` and what the logits and the units of the model are
        like, in evaluation mode and without gradients; the model is left as it was. `inputs` are a
        tensor, a tuple of the model's arguments, a mapping of its keywords, or an iterable of such
        batches with their targets, like a loader. `loss(output, targets)` is a mean over the batch;
        left out, it is the model's own (`output.loss`), if it has one.
        """
        try:
            checks.probe_set(inputs, targets, loss)
        except OrchestratorError as mistake:
            self._tell("probe", mistake)
            return
        if self._recorder is not None:
            self._recorder.evaluate(batches(inputs, targets), loss)

    def clip_grad_norm_(self, max_norm: float | None) -> Tensor:
        """Clip the model's gradients like `torch.nn.utils.clip_grad_norm_`, and record.

        Returns the total norm before clipping. None or infinity records and leaves the gradients
        alone. Call it where one clips: after the last micro-batch and after `scaler.unscale_`.
        """
        limit = checks.max_norm(max_norm)
        parameters = list(self._model.parameters())
        norm, each = total_norm([p.grad for p in parameters if p.grad is not None])
        whole = over_shards(norm)  # on each rank, though one records
        if self._recorder is not None:
            if each is None:
                self._recorder.see_gradients()
            self._recorder.see_clip(whole, limit, each)
        if limit < math.inf:
            nn.utils.clip_grads_with_norm_(parameters, limit, norm)
        return norm

    def close(self) -> None:
        """End the recording; happens by itself when the process ends. Later logs still count."""
        if self._recorder is not None:
            self._recorder.close()

    def _log(self, given: str, value: float | Tensor, step: int | None) -> None:
        number = checks.number("log", given, value)
        name = self._name(given)
        if step is not None:
            step = checks.step(step, given, self._last_steps.get(name, 0))
            self._last_steps[name] = step
        if self._recorder is not None:
            self._recorder.log(name, number, step)

    def _tell(self, call: str, mistake: OrchestratorError) -> None:
        """Warn once of a mistake of the user's: a training does not end of what is not recorded."""
        if call not in self._told:
            self._told.add(call)
            _log.warning("%s", mistake)

    def _name(self, given: str) -> str:
        if given not in self._names:
            name = canonical(given)
            twin = next((g for g, n in self._names.items() if n == name), None)
            if twin is not None and _first_word(twin) != _first_word(given):
                raise OrchestratorError(
                    f"log: {given!r} and {twin!r} are both {name!r}",
                    "give one of them another name",
                )
            self._names[given] = name
        return self._names[given]


def _first_word(name: str) -> str:
    return name.replace(".", "/").replace("_", "/").partition("/")[0]
