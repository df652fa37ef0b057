"""A proposal for `max_norm` from unclipped gradient norms (docs/clip.md). numpy only.

Reading order: `reading` (files and telemetry into a NormSeries), `checks` (`scaling`, `health`),
`spikes`, `stable`, `shape`, `calibration`, `candidates`, `forecast`, `backtest`, `outlook`,
`proposal`; `monitor` keeps watching what was adopted.
"""

from orchestrator.plan.clip.proposal import as_json, propose
