"""Make a tracking store show the record: create what is missing, change what differs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.nouns import Campaign, Page, Record, Telemetry, Trial
from orchestrator.track import view
from orchestrator.track.curves import points, valid_name
from orchestrator.track.node import Node
from orchestrator.track.store import connected, experiment, is_server, shown
from orchestrator.track.tree import tree

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run
    from mlflow.tracking import MlflowClient

ID, DIGEST = "orchestrator.id", "orchestrator.digest"
BATCH = 1000
"""MLflow's own limit of metrics in one call."""

LONGEST_NOTE = 7900
"""MLflow cuts tags at 8,000 characters."""

LAYERS = "layers.png"
"""A picture of a trial's layers, among its artifacts."""

Reader = Callable[[Trial], Telemetry | None]
Drawer = Callable[[Telemetry], bytes | None]


def sync(
    record: Record,
    *,
    uri: str,
    pages: Mapping[str, Page],
    telemetry: Reader,
    picture: Drawer | None = None,
) -> str | None:
    """Show `record` at `uri` and return the way to look at it: a URL, or a command and a URL.

    `picture` draws a trial's layers; without it there are no pictures of them.

    May be called at any time and any number of times: every run carries the digest of what it
    shows, and one whose digest has not changed is left alone. Raises Unreachable.
    """
    with connected(uri) as client:
        where = experiment(client, record, uri)
        known = _known(client, where.experiment_id)
        runs: dict[str, str] = {}
        for node in tree(record, pages):
            run = known.get(node.id)
            digest = _digest(node)
            if run is None:
                run = _create(client, where.experiment_id, node, runs)
            runs[node.id] = run.info.run_id
            if run.data.tags.get(DIGEST) != digest:
                _fill(client, run, node, record.campaign, telemetry, picture)
                client.set_tag(run.info.run_id, DIGEST, digest)
        _describe(client, where.experiment_id, record, pages)
        return _way(uri, where.experiment_id)


def _known(client: MlflowClient, experiment_id: str) -> dict[str, Run]:
    """The campaign's runs by node id."""
    known: dict[str, Run] = {}
    token = None
    while True:
        page = client.search_runs([experiment_id], max_results=1000, page_token=token)
        known |= {r.data.tags[ID]: r for r in page if ID in r.data.tags}
        token = page.token
        if not token:
            return known


def _create(client: MlflowClient, experiment_id: str, node: Node, runs: Mapping[str, str]) -> Run:
    tags = {ID: node.id, "orchestrator.kind": node.kind}
    if node.parent is not None:
        tags["mlflow.parentRunId"] = runs[node.parent]
    start = node.start if node.start is not None else time.time()
    return client.create_run(
        experiment_id, start_time=int(start * 1000), tags=tags, run_name=node.name
    )


def _fill(
    client: MlflowClient,
    run: Run,
    node: Node,
    campaign: Campaign,
    telemetry: Reader,
    picture: Drawer | None,
) -> None:
    """Everything `node` shows. Safe to repeat: params never change, a point is known by step."""
    from mlflow.entities import Param, RunTag

    run_id, stamp = run.info.run_id, run.info.start_time
    tags = {
        **node.tags,
        "mlflow.note.content": node.note[:LONGEST_NOTE],
        "mlflow.source.name": campaign.training.target,
        "mlflow.source.type": "LOCAL",
    }
    new_params = {k: v for k, v in node.params.items() if k not in run.data.params}
    client.log_batch(
        run_id,
        params=[Param(valid_name(k), v) for k, v in new_params.items()],
        tags=[RunTag(k, v) for k, v in tags.items() if v and run.data.tags.get(k) != v],
    )
    recorded = telemetry(node.trial) if node.trial is not None else None
    batch = _points(run, node, campaign, recorded)
    for first in range(0, len(batch), BATCH):
        client.log_batch(run_id, metrics=batch[first : first + BATCH])
    if node.kind in ("campaign", "trial"):
        _log_dataset(client, run, campaign)
    files = dict(node.files)
    if node.with_layers and picture and recorded and (drawn := picture(recorded)):
        files[LAYERS] = drawn
    if files:
        _log_files(client, run_id, files)
    if node.rows:
        _log_table(client, run_id, node)
    if node.status == "RUNNING":
        client.update_run(run_id, node.status)
        return
    end = time.time() if node.end is None else node.end
    client.set_terminated(run_id, node.status, max(stamp, int(end * 1000)))


def _points(run: Run, node: Node, campaign: Campaign, recorded: Telemetry | None) -> list[Metric]:
    """Curves of a trial on its optimizer step, then the numbers that have no curve.

    The time stamp is the run's start, so that a point written twice is one point. A statistic that
    changed (a verdict reached with more seeds) is the newest at its step by a later stamp.
    """
    from mlflow.entities import Metric

    stamp, now = run.info.start_time, int(time.time() * 1000)
    curves = []
    if recorded:
        kinds = {"with_test": node.with_test, "with_layers": node.with_layers}
        curves = list(points(recorded, campaign.metric, **kinds))
    batch = [Metric(name, value, stamp, step) for name, step, value in curves]
    drawn = {name for name, _, _ in curves}
    for name, value in node.metrics.items():
        key, old = valid_name(name), run.data.metrics.get(valid_name(name))
        if key not in drawn and old != value:
            batch.append(Metric(key, value, stamp if old is None else now, 0))
    return batch


def _log_dataset(client: MlflowClient, run: Run, campaign: Campaign) -> None:
    """The data as the run's input, by the user's own word for its version."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    if run.inputs is not None and run.inputs.dataset_inputs:
        return
    training = campaign.training
    name = training.data or f"data of {training.target}"
    digest = hashlib.sha256((training.data or training.code).encode()).hexdigest()[:8]
    source = json.dumps({"program": training.target})
    data = Dataset(name=name, digest=digest, source_type="code", source=source)
    tags = [InputTag(key="mlflow.data.context", value="training")]
    client.log_inputs(run.info.run_id, [DatasetInput(dataset=data, tags=tags)])


def _log_files(client: MlflowClient, run_id: str, files: Mapping[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        client.log_artifacts(run_id, folder)


def _log_table(client: MlflowClient, run_id: str, node: Node) -> None:
    """The table of a page; `log_table` would append to one that is there, so that is replaced."""
    import pandas as pd

    name = "table.json"
    data = pd.DataFrame([list(row) for row in node.rows], columns=list(node.columns))
    if any(item.path == name for item in client.list_artifacts(run_id)):
        client.log_text(run_id, data.to_json(orient="split", index=False), name)
    else:
        client.log_table(run_id, data, name)


def _describe(
    client: MlflowClient, experiment_id: str, record: Record, pages: Mapping[str, Page]
) -> None:
    """The experiment's own description, and the saved views, which may fail and not matter."""
    from mlflow.exceptions import MlflowException

    if "" in pages:
        note = pages[""].summary[:LONGEST_NOTE]
        client.set_experiment_tag(experiment_id, "mlflow.note.content", note)
    with contextlib.suppress(MlflowException):
        for tag, value in view.views(record.campaign.metric, now=time.time()).items():
            client.set_experiment_tag(experiment_id, tag, value)


def _way(uri: str, experiment_id: str) -> str:
    """Without `workflowType` an experiment opens on an empty page for language-model traces."""
    path = (
        f"/#/experiments/{experiment_id}/runs?workflowType=machine_learning"
        f"&viewStateShareKey={view.FIRST}"
    )
    if is_server(uri):
        return uri.rstrip("/") + path
    return (
        f"mlflow server --port 5000 --backend-store-uri {shown(uri)}   then open   "
        f"http://127.0.0.1:5000{path}"
    )


def _digest(node: Node) -> str:
    """What the run shows, in sixteen characters; the trial's curves never change once it ended."""
    shown_of = asdict(node)
    shown_of["files"] = {k: hashlib.sha256(v).hexdigest() for k, v in node.files.items()}
    text = json.dumps(shown_of, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
