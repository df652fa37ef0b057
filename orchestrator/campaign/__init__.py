"""Run, preview and publish a campaign: the room that knows every other.

`loop` is the walk itself, `measured` what it reads off finished trials, `views` what is shown.
"""

from orchestrator.campaign.loop import run
from orchestrator.campaign.views import preview, publish

__all__ = ["preview", "publish", "run"]
