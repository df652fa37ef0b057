"""Hugging Face's callback: the telemetry of a plain loop, from the Trainer's own calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from orchestrator.errors import OrchestratorError
from orchestrator.monitor.sizes import sizes
from orchestrator.monitor.watch import Monitor, watch

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    raise OrchestratorError(
        f"HuggingFaceMonitor: {error}", "install it: pip install 'orchestrator[transformers]'"
    ) from None

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from transformers import Trainer, TrainerState, TrainingArguments

    from orchestrator.monitor.recorder import Recorder

_TIMINGS = ("_runtime", "_per_second", "_time")
"""Ends of the names under which the Trainer tells how long an evaluation took."""


class HuggingFaceMonitor(TrainerCallback):  # type: ignore[misc]  # mypy does not look into it
    """`trainer.add_callback(HuggingFaceMonitor(trainer))` records what a plain loop would.

    Recorded are the loss of each optimizer step, the metrics of evaluations, and all that the
    monitor sees of model and optimizer, before the Trainer clips. A callback is told neither a
    step's loss nor its norm before clipping, and the Trainer's log hides a loss that is not finite.
    So while it trains, `training_step` of the trainer, and `unscale_gradients` and
    `clip_grad_norm_` of its accelerator, are listened to. To record more, use `monitor.log`.
    `options` are those of `watch`.
    """

    def __init__(self, trainer: Trainer | None = None, **options: Any) -> None:
        if trainer is None:
            raise OrchestratorError(
                "HuggingFaceMonitor: no trainer was given",
                "make it first, then: trainer.add_callback(HuggingFaceMonitor(trainer))",
            )
        self.monitor: Monitor | None = None
        self._trainer = trainer
        self._options = options
        self._losses: list[Tensor] = []  # of this step's micro-batches; they add up to its loss
        self._listened: list[tuple[object, str]] = []

    @property
    def _recorder(self) -> Recorder | None:
        return self.monitor.recorder if self.monitor is not None else None

    def on_train_begin(
        self, _args: TrainingArguments, state: TrainerState, *_: Any, **kwargs: Any
    ) -> None:
        """Look on, now that checkpoint and devices are in place."""
        self.on_train_end()  # of a training that was broken off
        optimizer = kwargs["optimizer"]
        while hasattr(optimizer, "optimizer"):  # accelerate wraps it
            optimizer = optimizer.optimizer
        accelerator = self._trainer.accelerator
        self.monitor = watch(
            kwargs["model"],
            optimizer,
            first_step=state.global_step,
            scaler=accelerator.scaler,
            **self._options,
        )
        if self._recorder is not None:
            self._listen(self._trainer, "training_step", self._after_backward)
            self._listen(accelerator, "unscale_gradients", self._before_clipping)
            self._listen(accelerator, "clip_grad_norm_", self._after_clipping)

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Log the loss that this step is made from."""
        if self.monitor is not None and self._losses:
            self.monitor.log(train_loss=torch.stack(self._losses).sum())
            self._losses.clear()

    def on_evaluate(self, *_: Any, metrics: dict[str, float], **__: Any) -> None:
        """Log what was measured, on the validation split or on the test split."""
        wanted = {n: v for n, v in metrics.items() if n != "epoch" and not n.endswith(_TIMINGS)}
        if self.monitor is not None:
            self.monitor.log(None, **wanted)

    on_predict = on_evaluate

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Write what is left, and listen no longer."""
        for owner, name in self._listened:
            delattr(owner, name)
        self._listened.clear()
        self._losses.clear()
        if self.monitor is not None:
            self.monitor.close()

    def _listen(self, owner: object, name: str, hear: Callable[..., None]) -> None:
        """Call `hear` with result and arguments after each call of that method of `owner`."""
        method = getattr(owner, name)

        def heard(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            hear(result, *args, **kwargs)
            return result

        setattr(owner, name, heard)  # on the object itself, where it hides its class's method
        self._listened.append((owner, name))

    def _after_backward(
        self, loss: Tensor, _: object, inputs: Mapping[str, object], *__: Any, **___: Any
    ) -> None:
        """Keep the loss of a micro-batch, and tell how much there was in it."""
        self._losses.append(loss)
        if self.monitor is not None:
            samples, tokens = sizes(inputs)
            self.monitor.batch(samples=samples, tokens=tokens)

    def _before_clipping(self, *_: Any, **__: Any) -> None:
        """See gradients that are accumulated, unscaled and not yet clipped."""
        if self._recorder is not None:
            self._recorder.see_gradients()

    def _after_clipping(
        self, norm: object, _: object, max_norm: float, *__: Any, **___: Any
    ) -> None:
        """Keep the norm from before clipping, which the accelerator returns."""
        if self._recorder is not None and isinstance(norm, Tensor):
            self._recorder.see_clip(norm, max_norm)
