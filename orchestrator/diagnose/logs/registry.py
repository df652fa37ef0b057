"""The registry of rules for foreign logs, a sibling of `diagnose.registry`.

A rule is a function Log -> Finding | None in the file of its theme; the summary of its Finding is a
template over the evidence, `{first}` and `{last}` (steps). It differs from a rule for trials in its
input, a Log with the reader's facts and directions, and in the label that it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.nouns import Finding
from orchestrator.telemetry.readers import Log

LogCheck = Callable[[Log], Finding | None]


@dataclass(frozen=True, slots=True)
class LogRule:
    """One registered rule.

    `label` is what a log on which it fires is called. `asks` names the row of the table of
    hypotheses that it asks for; empty where a check of code or data comes before any training.
    `explains` names the rules whose findings this one is the cause of.
    """

    name: str
    theme: str
    label: str
    asks: str
    explains: tuple[str, ...]
    check: LogCheck


LOG_RULES: dict[str, LogRule] = {}
"""Every rule by name, in order of registration: causes before effects, grave before mild."""


def log_rule(
    label: str, *, asks: str = "", explains: Sequence[str] = ()
) -> Callable[[LogCheck], LogCheck]:
    """Register a check under its function's name, with its file's name as theme."""

    def register(check: LogCheck) -> LogCheck:
        name, theme = check.__name__, check.__module__.rsplit(".", 1)[-1]
        assert name not in LOG_RULES, f"two rules are called {name}"
        LOG_RULES[name] = LogRule(name, theme, label, asks, tuple(explains), check)
        return check

    return register
