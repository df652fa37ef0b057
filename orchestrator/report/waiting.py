"""One line that says what takes long, on a terminal only; it disappears when it is over."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from orchestrator.report.console import console

Say = Callable[[str], None]


@contextmanager
def waiting(text: str) -> Iterator[Say]:
    """Show `text` on standard error until the block ends; call what it yields to change it."""
    out = console(sys.stderr)
    if not out.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task(text, total=None)
        yield lambda text: bar.update(task, description=text)
