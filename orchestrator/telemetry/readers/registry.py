"""The formats that can be read. A format is one function and one sniffer in a file of its own.

```python
@reader("my_format", sniff=lambda head, path: 0.9 if head.startswith(b"MINE") else 0.0)
def read(path: Path) -> Raw:
    ...
```
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.telemetry.readers.log import Raw

Sniff = Callable[[bytes, Path], float]
"""How sure a format is that a file is its own, from its first bytes (none of a folder) and path: 0
not at all, 0.2 any text will do, 0.4 plausible, 0.6 its shape, 0.8 its names, 1 its signature."""

Read = Callable[[Path], Raw]


@dataclass(frozen=True, slots=True)
class Format:
    """A registered format."""

    name: str
    sniff: Sniff
    read: Read


FORMATS: dict[str, Format] = {}


def reader(name: str, *, sniff: Sniff) -> Callable[[Read], Read]:
    """Register the decorated function as the reader of format `name`."""

    def register(read: Read) -> Read:
        FORMATS[name] = Format(name, sniff, read)
        return read

    return register


def detect(head: bytes, path: Path) -> Format | None:
    """The format that is surest; of equally sure ones the first registered."""
    scores = [(form.sniff(head, path), form) for form in FORMATS.values()]
    score, form = max(scores, key=lambda pair: pair[0])
    return form if score > 0 else None
