"""Where a resumed training goes on."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from torch.optim import Optimizer

_log = logging.getLogger(__name__)


def steps_taken(optimizers: Sequence[Optimizer], first_step: int | None, written: int) -> int:
    """Optimizer steps made before the first one that is seen.

    By a loaded optimizer's own count, else as the program says (`first_step`), else `written`, how
    far the telemetry of an earlier process goes. The latter only if the optimizer has a state, like
    SGD's momentum: without one, a training that goes on cannot be told from one that starts again.
    """
    states = [state for optimizer in optimizers for state in optimizer.state.values()]
    counted = next((state["step"] for state in states if "step" in state), 0)
    if int(counted):
        return int(counted)
    if first_step is not None:
        return first_step
    if written and not states:
        _log.warning(
            "steps are counted from 0 and replace the %d that were recorded here before; for a"
            " training that goes on, load its optimizer first or say watch(..., first_step=...)",
            written,
        )
    return written if states else 0
