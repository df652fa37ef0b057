"""Lightning's callback: the telemetry of a plain loop, from Lightning's own hooks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from orchestrator.errors import OrchestratorError
from orchestrator.monitor.sizes import sizes
from orchestrator.monitor.watch import Monitor, watch
from orchestrator.telemetry.names import has_split

try:
    from lightning.pytorch import Callback
except ModuleNotFoundError as error:
    raise OrchestratorError(
        f"LightningMonitor: {error}", "install it: pip install 'orchestrator[lightning]'"
    ) from None

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer
    from torch.optim import Optimizer

    from orchestrator.monitor.recorder import Recorder


class LightningMonitor(Callback):  # type: ignore[misc]  # mypy does not look into Lightning
    """`Trainer(callbacks=[LightningMonitor()])` records what a plain loop with `watch` would.

    Recorded are the loss that `training_step` returns, what is logged while validating and testing,
    and all that the monitor sees of model and optimizer, before Lightning clips. With manual
    optimization gradients are seen as the optimizer gets them, and the header says so. To record
    more, use `monitor.log`. `options` are those of `watch`.
    """

    def __init__(self, **options: Any) -> None:
        self.monitor: Monitor | None = None
        self._options = options
        self._step = 0  # that the batch under way goes into
        self._before: dict[str, Tensor] = {}  # metrics when an evaluation began

    @property
    def _recorder(self) -> Recorder | None:
        return self.monitor.recorder if self.monitor is not None else None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look on, now that checkpoint and devices are in place."""
        one = len(trainer.optimizers) == 1  # Lightning counts the steps of all together
        self.monitor = watch(
            pl_module,
            trainer.optimizers,
            first_step=trainer.global_step if one else None,
            scaler=getattr(trainer.precision_plugin, "scaler", None),
            **self._options,
        )

    def on_train_batch_start(self, trainer: Trainer, _: Any, batch: Any, batch_idx: int) -> None:
        """Tell of this batch, and remember the step that it goes into."""
        if self.monitor is not None and self.monitor.recorder is not None:
            self._step = self.monitor.recorder.steps
            samples, tokens = sizes(batch)
            name = f"epoch {trainer.current_epoch}, batch {batch_idx}"
            self.monitor.batch(name, samples=samples, tokens=tokens)

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        """See gradients that are accumulated, unscaled and not yet clipped by Lightning."""
        recorder = self._recorder
        if recorder is None or not pl_module.automatic_optimization:
            return
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        norm = nn.utils.get_total_norm([g for g in gradients if g is not None])
        recorder.see_gradients()
        recorder.see_clip(norm, _max_norm(trainer, pl_module))

    def on_train_batch_end(self, trainer: Trainer, _: Any, outputs: Any, *__: Any) -> None:
        """Log the loss, which Lightning has divided by the number of micro-batches."""
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if self.monitor is not None and loss is not None:
            self.monitor.log(step=self._step, train_loss=loss * trainer.accumulate_grad_batches)

    def on_validation_start(self, trainer: Trainer, *_: Any) -> None:
        """Remember which metrics are there already."""
        self._before = dict(trainer.callback_metrics)

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        """Log the metrics that came with this validation."""
        if not trainer.sanity_checking:
            self._log_new(trainer.callback_metrics, "val")

    def on_test_start(self, trainer: Trainer, *_: Any) -> None:
        """Remember which metrics are there already."""
        self._before = dict(trainer.callback_metrics)

    def on_test_end(self, trainer: Trainer, *_: Any) -> None:
        """Log the metrics that came with this test."""
        self._log_new(trainer.callback_metrics, "test")

    def on_train_end(self, *_: Any) -> None:
        """Write what is left."""
        if self.monitor is not None:
            self.monitor.close()

    def on_exception(self, *_: Any) -> None:
        """Write what is left, whatever the training died of."""
        self.on_train_end()

    def _log_new(self, metrics: dict[str, Tensor], split: str) -> None:
        """Log what is not from before; a name without a split gets the one it was measured on."""
        new = {
            name: value for name, value in metrics.items() if self._before.get(name) is not value
        }
        named = {n if has_split(n) else f"{split}/{n}": value for n, value in new.items()}
        if self.monitor is not None:
            self.monitor.log(None, **named)


def _max_norm(trainer: Trainer, module: LightningModule) -> float | None:
    """Norm at which Lightning clips, infinite if it does not; None if it clips in another way."""
    package = type(module).configure_gradient_clipping.__module__.partition(".")[0]
    if package not in ("lightning", "pytorch_lightning"):  # the user's own method
        return None
    if not trainer.gradient_clip_val:
        return math.inf
    is_by_value = trainer.gradient_clip_algorithm == "value"
    return None if is_by_value else float(trainer.gradient_clip_val)
