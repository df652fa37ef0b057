import pytest
import torch

from orchestrator.monitor import activations


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """No campaign around the test, one thread, one stream of random numbers."""
    trial = ("TRIAL_FOLDER", "TRIAL_FACTS")
    for name in (*trial, "MONITOR_LEVEL", "MONITOR_EVERY", "MONITOR_HISTOGRAMS"):
        monkeypatch.delenv(f"ORCHESTRATOR_{name}", raising=False)
    monkeypatch.delenv("RANK", raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
    if activations.is_compile_in_use():  # which stops the recording of activations
        torch._dynamo.reset()
