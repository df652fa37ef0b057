"""What is shown of a campaign: the plan before it runs, the report and MLflow."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from orchestrator import launch, plan, report, track
from orchestrator.campaign.measured import read_telemetry
from orchestrator.ledger import FILE
from orchestrator.nouns import Campaign, Monitoring, Record
from orchestrator.record import load


def preview(campaign: Campaign, display: report.Display) -> None:
    """Show what would be launched: the plan of the round under way, or what may come first."""
    folder = Path(campaign.folder)
    rounds = load(folder).rounds if (folder / FILE).exists() else ()
    resolve = partial(launch.resolve, campaign.training)
    planned = next((r.plan for r in reversed(rounds) if r.plan), None)
    if planned is None:
        planned = plan.freeze(plan.foresee(campaign), campaign.training, resolve)
    told = plan.cost(planned, campaign, None), plan.reach(planned, campaign, None), _kept(campaign)
    display.plan(planned, "\n".join(filter(None, told)))


def _kept(campaign: Campaign) -> str:
    """How much the trials will record, where it is not what they record by default."""
    chosen = campaign.monitor
    if chosen == Monitoring():
        return ""
    return f"Recorded: monitor.level={chosen.level.value}, monitor.every={chosen.interval}."


def publish(record: Record, display: report.Display | None = None) -> None:
    """Write the report and feed MLflow, views both; tell `display` where they lie.

    Raises track.Unreachable when the report is written but MLflow does not answer.
    """
    written = report.write(record, telemetry=read_telemetry)
    uri, url = record.campaign.tracking_uri, None
    try:
        if uri is not None:
            url = track.sync(
                record,
                uri=uri,
                pages=written.pages,
                telemetry=read_telemetry,
                picture=report.layer_picture,
            )
    finally:
        if display is not None:
            display.published(written.html, url)
