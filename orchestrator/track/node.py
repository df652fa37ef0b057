"""One run as it should be, and when it began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.nouns import Trial


@dataclass(frozen=True, slots=True)
class Node:
    """One run as it should be. `id` is unique within a campaign; parents come before children.

    `params` hold only what differs from the baseline. `files` are artifacts by path. `start` and
    `end` are unix seconds, None where nobody knows. A node with a `trial` shows its curves,
    with `with_layers` those of its layers too, and a picture of them.
    """

    id: str
    parent: str | None
    kind: str
    name: str
    status: str = "RUNNING"
    start: float | None = None
    end: float | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    trial: Trial | None = None
    with_test: bool = False
    with_layers: bool = False


def spanned(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Give each parent the span of what lies below it, and siblings starts in reading order.

    MLflow nests runs only when they are sorted by their start, so the start is the order: trials
    that began at the same time on two workers must not swap their arms.
    """
    spans = {n.id: (n.start, n.end) for n in nodes}
    for node in reversed(nodes):  # children come after parents
        start, end = spans[node.id]
        if node.parent is not None:
            first, last = spans[node.parent]
            spans[node.parent] = (_least(first, start), _most(last, end))
    latest: dict[str, float] = {}
    placed = []
    for node in nodes:
        start, end = spans[node.id]
        if start is not None and node.parent is not None and node.trial is None:
            start = max(start, latest.get(node.parent, 0.0) + 0.001)
            latest[node.parent] = start
        placed.append(replace(node, start=start, end=end))
    return tuple(placed)


def _least(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else min(a, b)


def _most(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else max(a, b)
