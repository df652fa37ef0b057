"""The recordings under way in this process, for whoever ends a trial there to have them closed."""

from __future__ import annotations

import weakref
from typing import Protocol


class Recording(Protocol):
    """Something that still holds values to be written; closing it writes them."""

    def close(self) -> None:
        """Write what is left; safe to call twice."""


_open: weakref.WeakSet[Recording] = weakref.WeakSet()


def add(recording: Recording) -> None:
    """Have `recording` closed by `close_all`, if it lives so long."""
    _open.add(recording)


def close_all() -> None:
    """Close every recording of this process.

    They close by themselves when the process ends, which is too late for a trial whose outcome is
    read from them, and never comes where one process runs trial after trial.
    """
    for recording in list(_open):
        recording.close()
        _open.discard(recording)
