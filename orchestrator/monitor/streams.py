"""Named, independent streams of random numbers, so that arms with one seed are paired."""

from __future__ import annotations

import hashlib

import torch

_used: set[str] = set()


def used() -> str:
    """The streams asked for in this process, as comma-separated `name:seed`."""
    return ",".join(sorted(_used))


def forget() -> None:
    """The next trial in this process begins: the streams were those of the last one."""
    _used.clear()


def generator(seed: int, name: str) -> torch.Generator:
    """A random stream of its own for `name` (CPU), the same for a seed whatever else draws numbers.

    One seed for the global stream does not pair two arms: an arm that draws more (dropout 0.2
    instead of 0) gets other batches from the second epoch on. Give the order of the data a stream:
    `DataLoader(..., shuffle=True, generator=generator(seed, "data"))`; and the initialisation,
    when arms differ in what they build: `nn.init.normal_(w, generator=generator(seed, "init"))`.
    Dropout draws from the global stream only; fence it off where training begins with
    `torch.manual_seed(generator(seed, "dropout").initial_seed())`.
    """
    _used.add(f"{name}:{seed}")
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
