"""Run, preview and publish a campaign: the room that knows every other.

`loop` is the walk itself, `pilot` what a clip proposal is made from, `measured` what is read off
finished trials, `views` what is shown.
"""

from orchestrator.campaign.loop import run
from orchestrator.campaign.pilot import pilot
from orchestrator.campaign.views import preview, publish

__all__ = ["pilot", "preview", "publish", "run"]
