"""Which seeds are used for what: blocks that never meet, in numbers that can be read."""

from __future__ import annotations

from typing import Literal

from orchestrator.errors import OrchestratorError
from orchestrator.nouns import CONFIRMING, Protocol

HEADLINE = 9000

_STAGES = {"screen": 0, "confirm": 1}


def seed_block(
    protocol: Protocol, *, number: int, stage: Literal["screen", "confirm"]
) -> tuple[int, ...]:
    """The most seeds that one stage of round `number`, from 1 on, may take.

    Round 1 screens on 0, 1, ... and confirms on 100, 101, ...; round 2 goes on at 200, and so on,
    all above `protocol.first_seed`.
    """
    count = protocol.looks[-1] if stage == "screen" else _most_confirming(protocol)
    block = _block(protocol)
    first = block * (2 * (number - 1) + _STAGES[stage])
    if first + block > HEADLINE:
        raise OrchestratorError(
            f"round {number} would reach the seeds that are kept for the headline.",
            f"set budget.rounds to {HEADLINE // (2 * block)} or less",
        )
    return tuple(range(protocol.first_seed + first, protocol.first_seed + first + count))


def _most_confirming(protocol: Protocol) -> int:
    return protocol.confirm_seeds or CONFIRMING[1]


def headline_seeds(protocol: Protocol) -> tuple[int, ...]:
    """The seeds on which final meets original, used for nothing else: 9000, 9001, ..."""
    first = protocol.first_seed + HEADLINE
    return tuple(range(first, first + protocol.headline_seeds))


def _block(protocol: Protocol) -> int:
    """Seeds set aside for one stage: 100, or as many hundreds as the longest stage takes."""
    return 100 * -(-max(protocol.looks[-1], _most_confirming(protocol)) // 100)
