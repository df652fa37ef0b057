import numpy as np
import torch

from orchestrator import generator


def draws(seed: int, name: str, n: int = 4) -> list[float]:
    return torch.rand(n, generator=generator(seed, name)).tolist()


def test_a_stream_is_the_same_for_the_same_seed_and_name():
    assert draws(3, "data") == draws(3, "data")


def test_streams_differ_by_seed_and_by_name():
    streams = {tuple(draws(s, n)) for s in range(100) for n in ("init", "data", "dropout")}
    assert len(streams) == 300
    assert draws(11, "x") != draws(1, "1x")


def test_streams_are_not_correlated():
    first = np.array([draws(seed, "init", 50) for seed in range(40)])
    second = np.array([draws(seed, "data", 50) for seed in range(40)])
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 4 / np.sqrt(first.size)


def test_other_draws_do_not_move_a_stream():
    """Dropout draws from the global stream; the order of the data must not notice."""
    orders = []
    for dropout in (0.0, 0.5):
        shuffle = generator(0, "data")
        torch.manual_seed(0)
        order = []
        for _ in range(3):
            order.append(torch.randperm(20, generator=shuffle).tolist())
            torch.nn.functional.dropout(torch.ones(7), dropout)
        orders.append(order)
    assert orders[0] == orders[1]


def test_making_a_stream_draws_nothing_from_the_global_one():
    before = torch.get_rng_state()
    generator(0, "init")
    assert torch.equal(torch.get_rng_state(), before)
