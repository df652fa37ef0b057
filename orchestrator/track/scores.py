"""The runs of an experiment as a table of scores, for `compare mlflow:EXPERIMENT`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from orchestrator.errors import OrchestratorError, nearest
from orchestrator.score_nouns import COLUMNS, Columns, ScoreTable
from orchestrator.track import rows
from orchestrator.track.store import Unreachable, connected, known_uri, shown

if TYPE_CHECKING:
    from mlflow.entities import Experiment, Run
    from mlflow.store.entities import PagedList
    from mlflow.tracking import MlflowClient

PAGE = 1000


def scores(
    experiment: str,
    *,
    metric: str | None = None,
    columns: Columns = COLUMNS,
    baseline: str | None = None,
    where: str = "",
    uri: str | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> ScoreTable:
    """The last value of `metric` of every run of an experiment, which is given by name or id.

    `columns` name the tag or parameter that holds an arm, a seed and, if need be, a status;
    `tags.X` and `params.X` say which of the two. `where` is a filter in MLflow's search syntax. A
    metric that is NaN or infinite makes a run diverged; without one, a run that failed or was
    killed is an accident, hence missing. A campaign of our own needs no names: it is compared among
    the seeds to which its `baseline` belongs, by default those of the first round. `progress` is
    told the number of runs read so far. Raises an OrchestratorError if the store does not answer,
    or has no scores.
    """
    name = f"mlflow:{experiment}"
    uri = known_uri(name, uri)
    try:
        with connected(uri) as client:
            found = _experiment(client, experiment, name)
            runs = _runs(client, found.experiment_id, where, progress)
    except Unreachable as error:
        raise OrchestratorError(
            f"{name}: {error.problem}", f"check the tracking URI ({shown(uri)}) and its server"
        ) from error
    if not runs:
        filtered = f" that match {where!r}" if where else ""
        raise OrchestratorError(f"{name} has no runs{filtered}", "check its name, or the filter")
    if columns == COLUMNS and rows.is_campaign(runs):
        return rows.of_campaign(name, runs, metric=metric, baseline=baseline)
    return rows.of_anybody(name, runs, metric=metric, columns=columns)


def _experiment(client: MlflowClient, experiment: str, name: str) -> Experiment:
    known = list(client.search_experiments(max_results=PAGE))
    for found in known:
        if experiment in (found.name, found.experiment_id):
            return found
    raise OrchestratorError(
        f"{name}: there is no such experiment, or it is deleted",
        nearest(experiment, [e.name for e in known]),
    )


def _runs(
    client: MlflowClient, experiment_id: str, where: str, progress: Callable[[int], None]
) -> list[Run]:
    runs: list[Run] = []
    token = None
    while True:
        page = _page(client, experiment_id, where, token)
        runs += page
        progress(len(runs))
        token = page.token
        if not token:
            return runs


def _page(
    client: MlflowClient, experiment_id: str, where: str, token: str | None
) -> PagedList[Run]:
    from mlflow.exceptions import MlflowException

    try:
        return client.search_runs(
            [experiment_id], where, max_results=PAGE, page_token=token,
            order_by=["attributes.start_time ASC"],
        )  # fmt: skip
    except MlflowException as error:
        if not where or error.error_code != "INVALID_PARAMETER_VALUE":
            raise
        raise OrchestratorError(
            f"filter {where!r}: {str(error).partition(chr(10))[0]}",
            "for example: params.model = 'wide' and metrics.accuracy > 0.5",
        ) from error
