"""A proposal for `max_norm` from unclipped gradient norms (docs/clip.md). numpy only.

Reading order: `reading` and `table` (what was recorded into a NormSeries), `checks` (`scaling`,
`health`), `spikes`, `stable`, `shape`, `calibration`, `candidates`, `forecast`, `backtest`,
`outlook`, `recommendation`, `proposal`; `watching` keeps an eye on what was adopted.
"""

from orchestrator.plan.clip.contract import as_json
from orchestrator.plan.clip.health import until_it_broke
from orchestrator.plan.clip.proposal import Survey, propose, survey
from orchestrator.plan.clip.reading import from_telemetry, read_norms
from orchestrator.plan.clip.watching import watch

__all__ = [
    "Survey",
    "as_json",
    "from_telemetry",
    "propose",
    "read_norms",
    "survey",
    "until_it_broke",
    "watch",
]
