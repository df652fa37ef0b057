import pytest

from orchestrator.errors import OrchestratorError


def table(rows, header="step,loss"):
    return header + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)


def test_a_restart_at_the_beginning_is_a_run_of_its_own(read):
    rows = [(i, 9) for i in range(10)] + [(i, 1) for i in range(50)]
    log = read("x.csv", table(rows))
    assert (log.runs, log.run, log.n_points) == (("1", "2"), "2", 60)
    assert log.telemetry["train/loss"].values.tolist() == [1] * 50
    assert "2 runs (1, 2): run 2 is read, 50 rows" in log.warnings
    first = read("x.csv", table(rows), run="1")
    assert first.telemetry["train/loss"].values.tolist() == [9] * 10
    with pytest.raises(OrchestratorError, match="no run '7'"):
        read("x.csv", table(rows), run="7")


def test_of_equally_long_runs_the_last_is_read(read):
    rows = [(i, run) for run in (1, 2, 3) for i in range(5)]
    assert read("x.csv", table(rows)).run == "3"


def test_a_resume_replaces_the_older_rows_from_there_on(read):
    rows = [(i, 1) for i in range(100)] + [(i, 2) for i in range(60, 80)]
    log = read("x.csv", table(rows))
    assert log.telemetry["train/loss"].steps.tolist() == list(range(80))
    assert log.telemetry["train/loss"].values.tolist() == [1] * 60 + [2] * 20
    assert log.facts["resumed_at"] == "60"


def test_of_duplicate_rows_the_last_stands(read):
    log = read("x.csv", table([(1, 5), (2, 4), (2, 3), (3, 2)]))
    assert log.telemetry["train/loss"].values.tolist() == [5, 3, 2]
    assert "several values at one step" in log.warnings[0]


def test_a_row_that_comes_late_is_put_in_order(read):
    log = read("x.csv", table([(1, 5), (2, 4), (4, 2), (3, 3), (5, 1)]))
    assert log.telemetry["train/loss"].values.tolist() == [5, 4, 3, 2, 1]
    assert log.runs == ("1",)


def test_rows_in_no_order_are_sorted(read):
    steps = [(7 * i) % 20 for i in range(20)]
    log = read("x.csv", table([(s, s) for s in steps]))
    assert log.telemetry["train/loss"].values.tolist() == list(range(20))
    assert "in no order" in log.warnings[0]


def test_rows_with_the_newest_first_are_turned_round(read):
    log = read("x.csv", table([(s, s) for s in range(30, 0, -1)]))
    assert log.telemetry["train/loss"].values.tolist() == list(range(1, 31))
    assert log.runs == ("1",)


def test_evaluation_rows_that_lag_behind_are_no_restart(read):
    rows = [(i, 1, "") for i in range(10)] + [(i, "", 2) for i in range(0, 10, 5)]
    log = read("x.csv", table(rows, "step,train_loss,val_loss"))
    assert log.runs == ("1",)
    assert log.telemetry["val/loss"].steps.tolist() == [0, 5]


def test_runs_of_steps_that_start_anew_every_epoch(read):
    rows = [(e, s, run) for run in (1, 2) for e in (1, 2) for s in (100, 200, 300)]
    log = read("x.csv", table(rows, "epoch,iteration,train_loss"))
    assert log.runs == ("1", "2")
    assert log.telemetry["train/loss"].steps.tolist() == [100, 200, 300, 400, 500, 600]


def test_a_step_that_never_advances_numbers_nothing(read):
    log = read("x.csv", table([(0, 5 - i) for i in range(5)]))
    assert (log.axis, len(log.telemetry["train/loss"])) == ("row", 5)


def test_steps_out_of_all_bounds_are_no_steps(read):
    log = read("x.csv", table([(1, 5), (1e300, 4), ("inf", 3), ("nan", 2), (2, 1)]))
    assert log.telemetry["train/loss"].steps.tolist() == [1, 2]
