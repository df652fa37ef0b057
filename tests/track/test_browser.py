"""What a person sees who opens the URL that `run` prints: a real server, a real Chromium."""

import os
import runpy
import shutil
import time
from pathlib import Path

import pytest

from orchestrator.track import sync
from tests.track.test_sync import PAGES, short, small

SCREENSHOT = Path(__file__).parents[2] / "scripts" / "screenshot"


def seen(page, url: str, *, until: str, seconds: float = 60) -> str:
    """The page's text once it holds `until`."""
    page("url", {"url": url})
    deadline = time.monotonic() + seconds
    text = ""
    while until not in text and time.monotonic() < deadline:
        time.sleep(0.5)
        body = {"script": "return document.body.innerText", "args": []}
        text = page("execute/sync", body) or ""
    return text


@pytest.mark.skipif(
    shutil.which("chromedriver") is None and "CI" not in os.environ,
    reason="Debian's chromium-driver is not installed; scripts/setup dev installs it",
)
def test_the_printed_url_shows_arms_with_their_verdicts_first(server_uri, tmp_path):
    url = sync(small(tmp_path), uri=server_uri, pages=PAGES, telemetry=short)
    with runpy.run_path(str(SCREENSHOT))["browser"]() as page:
        page("window/rect", {"width": 1500, "height": 900})
        text = seen(page, url, until="weight_decay=0.1")
    for words in ("r1-a1.3 weight_decay=0.1", "better", "worse", "verdict", "val/loss.difference"):
        assert words in text
