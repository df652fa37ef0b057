import numpy as np
import pytest

from orchestrator.clip_nouns import NormSeries
from orchestrator.plan.clip import propose


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def pilot(norms, *, loss=None, lr=None, **fields):
    """A pilot whose loss falls unless told otherwise."""
    norms = np.asarray(norms, float)
    n = len(norms)
    noise = 0.02 * np.random.default_rng(1).standard_normal(n)
    falling = 0.3 + 2 * np.exp(-np.arange(n) / max(1, n / 5)) + noise
    return NormSeries(
        np.arange(n), norms, loss=falling if loss is None else loss, lr=lr, source="pilot", **fields
    )


def ask(series, **settings):
    asked = {"optimizer": None, "n_parameters": None, "horizon": None, "current": None}
    return propose(series, rng=np.random.default_rng(0), **(asked | settings))


def flags(proposal):
    return {f.name for f in proposal.flags}
