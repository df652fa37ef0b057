"""The metrics of a run that somebody else logged, for `diagnose mlflow:RUN_ID`."""

from __future__ import annotations

from orchestrator.errors import OrchestratorError
from orchestrator.track.store import Unreachable, connected, known_uri, shown

Histories = dict[str, list[tuple[float, int, float]]]
"""(time, step, value) of every point, by name of the metric."""


def histories(run_id: str) -> tuple[Histories, dict[str, str]]:
    """All points of all metrics of a run, and its parameters.

    The store is MLFLOW_TRACKING_URI, else our own database if there is one. Raises an
    OrchestratorError that names the store if it does not answer or does not know the run.
    """
    uri = known_uri(f"mlflow:{run_id}")
    try:
        with connected(uri) as client:
            run = client.get_run(run_id)
            found = {
                name: [
                    (float(p.timestamp), int(p.step), float(p.value))
                    for p in client.get_metric_history(run_id, name)
                ]
                for name in run.data.metrics
            }
            return found, dict(run.data.params)
    except Unreachable as error:
        raise OrchestratorError(
            f"mlflow:{run_id}: {error.problem}",
            f"check MLFLOW_TRACKING_URI ({shown(uri)}) and the run's id",
        ) from error
