import numpy as np


def table(header, rows):
    return header + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)


def test_a_first_loss_far_above_the_rest_is_told_as_a_ratio(read):
    rows = [(i, 20 if i == 0 else 2) for i in range(20)]
    assert read("x.csv", table("step,loss", rows)).facts["first_loss_ratio"] == 10


def test_a_rounded_loss_is_told(read):
    rng = np.random.default_rng(0)
    fine = [(i, rng.random() * 1e-3) for i in range(30)]
    coarse = [(i, round(value, 4)) for i, value in fine]
    log = read("x.csv", table("step,loss", coarse))
    assert log.facts["loss_quantum"] == 1e-4
    assert "rounded to 0.0001" in "".join(log.warnings)
    assert "loss_quantum" not in read("x.csv", table("step,loss", fine)).facts
    whole = [(i, round(3 + value, 4)) for i, value in fine]  # rounding hides nothing here
    assert "loss_quantum" not in read("x.csv", table("step,loss", whole)).facts


def test_a_learning_rate_of_zero_throughout_is_told(read):
    log = read("x.csv", table("step,loss,lr", [(i, 11.4 - i, 0.0) for i in range(5)]))
    assert log.facts["lr_always_zero"] is True
    warm_up = read("x.csv", table("step,loss,lr", [(i, 11.4 - i, 0.1 * i) for i in range(5)]))
    assert "lr_always_zero" not in warm_up.facts


def test_one_loss_of_exactly_zero_is_told_with_its_step(read):
    log = read("x.csv", table("epoch,train_loss", [(e, 0 if e == 3 else 1) for e in range(9)]))
    assert "exactly 0 at 1 step(s), first 3" in "".join(log.warnings)


def test_constant_series_are_named(read):
    log = read("x.csv", table("epoch,loss,val_acc", [(e, 2.303 - e, 0.1) for e in range(9)]))
    assert log.facts["constant"] == "val/accuracy"


def test_nan_of_evaluation_only_is_counted_apart(read):
    rows = [(i, 5.0 - i / 10, "nan") for i in range(7)]
    facts = read("x.csv", table("step,train_loss,val_loss", rows)).facts
    assert facts["nonfinite/val/loss"] == 7
    assert "nonfinite/train/loss" not in facts


def test_fifteen_decades_and_the_largest_numbers(read):
    values = [1.7e308, -1.7e308, 8.4e14, 1e-300, 5e-324]
    log = read("x.csv", table("step,loss", list(enumerate(values))))
    assert log.telemetry["train/loss"].values.tolist() == values


def test_facts_are_in_the_header_too(read):
    log = read("x.csv", table("step,loss", [(i, 3 - i) for i in range(3)]))
    assert log.facts.items() <= log.telemetry.header.items()
    assert log.telemetry.header["axis"] == "optimizer step"
