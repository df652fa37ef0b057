import pytest

from orchestrator.telemetry import canonical, unit


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("train_loss", "train/loss"),
        ("train/loss", "train/loss"),
        ("train.loss", "train/loss"),
        ("val_accuracy", "val/accuracy"),
        ("validation_loss", "val/loss"),
        ("valid/loss", "val/loss"),
        ("eval_loss", "val/loss"),
        ("test_top5/accuracy", "test/top5/accuracy"),
        ("probe_loss", "probe/loss"),
        ("loss", "loss"),
        ("trainer_state", "trainer_state"),
        ("value", "value"),
        ("lr", "lr"),
        ("val_", "val_"),
    ],
)
def test_a_split_comes_first_and_a_slash_follows(given, name):
    assert canonical(given) == name
    assert canonical(name) == name


def test_units_are_known_for_what_we_record():
    assert unit("update_ratio/block.0.weight") == "1"
    assert unit("grad_norm") == unit("probe/loss") == "loss"
    assert unit("step_seconds") == "s"
    assert unit("val/bleu") == ""
