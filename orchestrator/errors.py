"""The one exception that reaches a user.

OrchestratorError
└── (nothing yet: the command line prints problem and remedy and exits 2)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_NAMES = 50
"""Names that an error lists; more would hide what is wrong."""


class OrchestratorError(Exception):
    """What is wrong, with the full key and value, and what to do about it.

    Several independent mistakes are joined with `collect`, so that a user sees all of them at once.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem}\n  -> {remedy}" if remedy else problem)


def collect(errors: Iterable[OrchestratorError]) -> None:
    """Raise one error that tells all of `errors`; return if there are none."""
    found = list(errors)
    if len(found) == 1:
        raise found[0]
    if found:
        raise OrchestratorError(f"{len(found)} mistakes:\n" + "\n".join(str(e) for e in found))


def nearest(name: str, valid: Iterable[str]) -> str:
    """The sentence that helps after a wrong name: the nearest valid one, then all of them."""
    names = sorted(valid)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{hint}valid: {', '.join(names[:MOST_NAMES]) or '(none)'}{more}"
