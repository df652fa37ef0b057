import dataclasses

import pytest

from orchestrator.errors import OrchestratorError
from orchestrator.plan import headline_seeds, seed_block


def test_seed_blocks_are_readable(campaign):
    protocol = campaign.protocol
    assert seed_block(protocol, number=1, stage="screen") == (0, 1, 2, 3, 4)
    assert seed_block(protocol, number=1, stage="confirm")[:2] == (100, 101)
    assert seed_block(protocol, number=2, stage="screen")[0] == 200
    assert headline_seeds(protocol)[0] == 9000
    shifted = dataclasses.replace(protocol, first_seed=50)
    assert seed_block(shifted, number=1, stage="screen")[0] == 50


def test_no_seed_is_used_twice(campaign):
    for seeds in (4, 5, 150):
        protocol = dataclasses.replace(campaign.protocol, looks=(3, seeds))
        blocks = [headline_seeds(protocol)]
        for number in range(1, 20):
            blocks.append(seed_block(protocol, number=number, stage="screen"))
            blocks.append(seed_block(protocol, number=number, stage="confirm"))
        used = [seed for block in blocks for seed in block]
        assert len(set(used)) == len(used)


def test_rounds_never_reach_the_headline(campaign):
    with pytest.raises(OrchestratorError, match=r"budget\.rounds to 45"):
        seed_block(campaign.protocol, number=46, stage="screen")
