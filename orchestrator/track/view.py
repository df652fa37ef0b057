"""The saved view: what a reviewer sees first when the printed URL is opened.

MLflow keeps saved views in experiment tags `mlflow.sharedViewState.<key>`; their format is not
documented (read in MLflow 3.17's interface), so a change there costs the view and nothing else.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping

from orchestrator.nouns import Metric

PREFIX = "mlflow.sharedViewState."
FIRST = "orchestrator"
"""The view that the printed URL opens; the others are in its menu."""

PARTS = ("mean", "difference", "ci_low", "ci_high", "p_adjusted")


def views(metric: Metric, *, now: float) -> dict[str, str]:
    """Tag value by tag name: every ablation's arms; the same with their seeds; curves by arm.

    Rows are sorted by name, which MLflow shows flat: with nesting, its table opens folded to a
    single row whatever the view says. Names sort in reading order.
    """
    everything = _state(metric)
    arms = everything | {"searchFilter": "tags.`orchestrator.kind` != 'trial'"}
    by_arm = {
        "aggregateFunction": "average",
        "groupByKeys": [{"mode": "tag", "groupByData": "arm"}],
    }
    curves = everything | {
        "searchFilter": "tags.`orchestrator.kind` = 'trial'",
        "groupBy": by_arm,
        "runsHiddenMode": "SHOW_ALL",
    }
    named = {
        FIRST: ("arms", arms),
        "seeds": ("arms and seeds", everything),
        "curves": ("curves by arm", curves),
    }
    return {PREFIX + key: _packed(name, state, now) for key, (name, state) in named.items()}


def _state(metric: Metric) -> dict[str, object]:
    """Columns in the order in which they answer: verdict, mean, difference with interval, p, n."""
    chosen = [
        _column("tags", "verdict"),
        *(_column("metrics", f"{metric.name}.{part}") for part in PARTS),
        _column("metrics", "n"),
        _column("metrics", metric.name),
    ]
    widths = {
        _column("attributes", "Run Name"): 270,
        **dict.fromkeys(chosen, 105),
        chosen[0]: 190,
        _column("metrics", "n"): 60,
        "runDateAndNestInfo": 130,
        "duration": 90,
    }
    return {
        "orderByKey": _column("tags", "mlflow.runName"),
        "orderByAsc": True,
        "searchFilter": "",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
        "startTime": "ALL",
        "selectedColumns": chosen,
        "columnOrder": list(widths),
        "columnWidths": widths,
        "runsHiddenMode": "SHOW_ALL",
        "viewMaximized": False,
        "runListHidden": False,
        "isAccordionReordered": False,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "groupBy": None,
        "groupsExpanded": {},
        "globalLineChartConfig": {
            "xAxisKey": "step",
            "lineSmoothness": 0,
            "selectedXAxisMetricKey": "",
        },
    }


def _packed(name: str, state: Mapping[str, object], now: float) -> str:
    """A name, two times in milliseconds, and the state, deflated."""
    raw, moment = zlib.compress(json.dumps(state).encode()), int(now * 1000)
    packed = "deflate;" + base64.b64encode(raw).decode()
    return json.dumps({"name": name, "createdAt": moment, "updatedAt": moment, "state": packed})


def _column(kind: str, name: str) -> str:
    return f"{kind}.`{name}`"
