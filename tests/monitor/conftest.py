import pytest
import torch


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """No campaign around the test, one thread, one stream of random numbers."""
    for name in ("ORCHESTRATOR_TRIAL_FOLDER", "RANK"):
        monkeypatch.delenv(name, raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
