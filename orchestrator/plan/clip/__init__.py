"""A proposal for `max_norm` from unclipped gradient norms (docs/clip.md). numpy only.

Reading order: `reading` and `table` (what was recorded into a NormSeries), `checks` (`scaling`,
`health`), `spikes`, `stable`, `shape`, `calibration`, `candidates`, `forecast`, `backtest`,
`outlook`, `proposal`; `watching` keeps an eye on what was adopted.
"""

from orchestrator.plan.clip.proposal import as_json, propose
from orchestrator.plan.clip.reading import from_telemetry, read_norms

__all__ = ["as_json", "from_telemetry", "propose", "read_norms"]
