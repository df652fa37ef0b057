"""The registry of rules: one decorator, one table, one kind of object for all of them.

A rule is a function Telemetry -> Finding | None in the file of its theme. The summary of the
Finding that it returns is a template over the Finding's evidence, `{first}` and `{last}` (steps):
over several seeds the evidence becomes medians, and the sentence has to tell the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from orchestrator.nouns import Finding, Telemetry

ANYTHING = "*"
"""In `explains`: every rule that is registered later. What is wired wrong may cause anything."""

Check = Callable[[Telemetry], Finding | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """One registered rule and what has to be known about it without running it.

    `needs` are series names; alternatives are separated by `|`, and a name that ends in `/` stands
    for any layer of that quantity; what is in the header is always there. `tells` completes "cannot
    tell ...". `explains` names the rules whose findings this one is the root cause of, or ANYTHING.
    A rule is `extra` if what it takes is for some trainings only, or for the user to log.
    One that is `exact` has no threshold and hence
    no false alarms: one seed is enough for it.
    """

    name: str
    theme: str
    needs: tuple[str, ...]
    tells: str
    explains: tuple[str, ...]
    exact: bool
    extra: bool
    check: Check

    def lacks(self, telemetry: Telemetry) -> list[str]:
        """Which of the needed series are absent, as they are written in `needs`."""
        return [need for need in self.needs if not _present(need, telemetry)]


RULES: dict[str, Rule] = {}
"""Every rule by name, in order of registration; filled when the theme files are imported."""


def rule(
    *,
    needs: Sequence[str],
    tells: str,
    explains: Sequence[str] = (),
    exact: bool = False,
    extra: bool = False,
) -> Callable[[Check], Check]:
    """Register a check under its function's name, with its file's name as theme."""

    def register(check: Check) -> Check:
        name, theme = check.__name__, check.__module__.rsplit(".", 1)[-1]
        assert name not in RULES, f"two rules are called {name}"
        RULES[name] = Rule(name, theme, tuple(needs), tells, tuple(explains), exact, extra, check)
        return check

    return register


def rendered(finding: Finding) -> Finding:
    """The finding with its evidence told in its summary."""
    first, last = finding.steps
    summary = finding.summary.format(**finding.evidence, first=first, last=last)
    return replace(finding, summary=summary)


def _present(need: str, telemetry: Telemetry) -> bool:
    for name in need.split("|"):
        if name.endswith("/") and telemetry.layers(name[:-1]):
            return True
        if name in telemetry and len(telemetry[name]):
            return True
    return False
