from __future__ import annotations

import dataclasses
import math
import statistics
from pathlib import Path

import pytest

from orchestrator.nouns import Adoption, Comparison, Direction, Interval, Record
from orchestrator.report import pictures, sentences, tables, words
from orchestrator.stats import flags
from tests import records


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return records.finished(tmp_path)


def first(record: Record):
    turn = record.rounds[0]
    assert turn.plan is not None
    return turn.results[0], turn.plan.ablations[0], turn


def test_the_baseline_comes_first_and_then_the_arms_from_best_to_worst(record: Record) -> None:
    table = tables.ablation_table(*first(record))
    assert [row[0] for row in table.rows] == [
        "baseline",
        "weight_decay=0.1",
        "weight_decay=0.01",
        "weight_decay=0.001",
        "weight_decay=1.0",
    ]


def test_a_table_has_at_most_seven_columns_and_whole_rows(record: Record) -> None:
    for table in (
        tables.ablation_table(*first(record)),
        tables.headline_table(records.headline()),
        tables.confirmation_table(records.confirmation()),
        tables.plan_table(records.plan()),
        tables.accidents_table(record),
    ):
        assert len(table.columns) <= 7
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_the_mean_and_the_difference_are_those_of_the_trials(record: Record) -> None:
    row = tables.ablation_table(*first(record)).rows[1]
    runs = [records.score(records.WINNER, s) for s in records.SCREEN_SEEDS]
    mean, sd = statistics.mean(runs), statistics.stdev(runs)
    assert row[2] == f"{mean:.3f} ± {sd:.3f}"
    gaps = pictures.paired_differences(
        record, records.WINNER, records.BASELINE, records.SCREEN_SEEDS, "val/loss"
    )
    assert row[3].startswith(f"{statistics.mean(gaps):+.3f} [")


def test_differences_keep_the_direction_of_the_metric(record: Record) -> None:
    compared = first(record)[0].comparisons
    arm = compared.arms[2]
    assert words.difference(arm, compared.metric) == -arm.mean_difference
    interval = words.difference_interval(arm, compared.metric)
    assert interval == Interval(-arm.interval.high, -arm.interval.low)
    up = dataclasses.replace(compared.metric, direction=Direction.MAX)
    assert words.difference(arm, up) == arm.mean_difference
    assert words.difference_interval(arm, up) == arm.interval


def test_divergence_is_a_column_only_where_there_is_any(record: Record) -> None:
    with_diverged = tables.ablation_table(*first(record))
    assert with_diverged.columns[-2:] == ("diverged", "verdict")
    assert [row[-2] for row in with_diverged.rows] == ["0", "0", "0", "0", "1"]
    turn = record.rounds[0]
    assert turn.plan is not None
    without = tables.ablation_table(turn.results[1], turn.plan.ablations[1])
    assert "diverged" not in without.columns


def test_the_note_names_n_interval_method_and_direction(record: Record) -> None:
    note = tables.ablation_table(*first(record)).note
    for part in (
        "lower is better",
        "90%",
        "k = 4 arms",
        "guarded block Dunnett",
        "5 seeds",
        "0.31",
    ):
        assert part in note


def test_what_is_undefined_is_a_dash(record: Record) -> None:
    result, ablation, _ = first(record)
    nothing = dataclasses.replace(
        result.comparisons.arms[0],
        n_pairs=0,
        mean=math.nan,
        sd=math.nan,
        mean_difference=math.nan,
        p_better=math.nan,
        p_worse=math.nan,
        interval=Interval(-math.inf, math.inf),
    )
    arms: tuple[Comparison, ...] = (nothing, *result.comparisons.arms[1:])
    result = dataclasses.replace(
        result, comparisons=dataclasses.replace(result.comparisons, arms=arms)
    )
    rows = {row[0]: row for row in tables.ablation_table(result, ablation).rows}
    assert rows["weight_decay=0.001"][1:5] == ("0", "-", "-", "-")


def test_every_trial_is_in_the_table_of_trials_accidents_too(record: Record) -> None:
    arm = records.DROPOUT_ARMS[1]
    table = tables.trials_table(record.of(arm, records.SCREEN_SEEDS), record)
    assert len(table.rows) == 5
    assert table.rows[2][3] == "FAILED: RuntimeError: DataLoader worker exited unexpectedly"


def test_divergence_rates_carry_clopper_pearson_limits(record: Record) -> None:
    rows = {row[0]: row for row in tables.accidents_table(record).rows}
    # One-sided 95 %: 1 of 5 gives 1.02 % to 65.74 % (scipy.stats.beta.ppf), 0 of 4 up to 52.71 %.
    assert rows["optimizer.weight_decay=1"][1:4] == ("5", "1", "1% to 66%")
    assert rows["model.dropout=0.5"][1:] == ("4", "0", "0% to 53%", "0", "1")


def test_a_plan_shows_what_each_arm_changes(record: Record) -> None:
    rows = {row[0]: row for row in tables.plan_table(records.plan()).rows}
    assert rows["weight_decay=0.1"][1:] == ("optimizer.weight_decay: 0 → 0.1", "5")
    assert rows["baseline"][1] == "original configuration"


def test_at_one_of_several_looks_the_note_tells_look_and_level(record: Record) -> None:
    result, ablation, turn = first(record)
    looked = dataclasses.replace(
        result.comparisons, looks=(3, 5), levels=(0.018, 0.04), look=2,
        arms=tuple(dataclasses.replace(c, look=1 + i % 2) for i, c in
                   enumerate(result.comparisons.arms)),
    )  # fmt: skip
    note = tables.ablation_table(
        dataclasses.replace(result, comparisons=looked), ablation, turn
    ).note
    assert "look 2 of 2 (5 seeds), level 0.04; intervals hold over all looks, at 3 and 5" in note
    assert "an arm that ended at an earlier look keeps its numbers" in note
    lines = sentences.arm(looked.arms[0], looked, None, "")
    assert "Decided at look 1 of 2 (3 seeds), level 0.018." in lines


def test_an_accuracy_over_few_examples_says_that_more_seeds_will_not_help(record: Record) -> None:
    compared = first(record)[0].comparisons
    accuracy = dataclasses.replace(compared.metric, name="val/accuracy", resolution=1 / 100)
    shared = dataclasses.replace(compared, metric=accuracy, baseline_mean=0.9)
    arm = dataclasses.replace(compared.arms[0], mean=0.95, mean_difference=0.05, se=0.01)
    told = " ".join(sentences.arm(arm, shared, None, ""))
    # They differ on at least 5 of 100 examples: sqrt(0.05 / 100) = 0.022.
    assert "is limited by the validation set: its 100 examples" in told
    assert "add 0.022 to 0.039" in told
    unsure = dataclasses.replace(arm, mean=0.9, mean_difference=0.0)
    assert "may be limited" in " ".join(sentences.arm(unsure, shared, None, ""))
    precise = dataclasses.replace(shared, metric=dataclasses.replace(accuracy, resolution=1e-6))
    assert "limited" not in " ".join(sentences.arm(arm, precise, None, ""))


def test_a_plan_with_looks_tells_the_fewest_and_the_most_trials() -> None:
    plan = dataclasses.replace(records.plan(), looks=(3, 5), confirm_from=5)
    table = tables.plan_table(plan)
    assert {row[2] for row in table.rows} == {"3 to 5"}
    assert "looked at after 3 and 5, each arm until it is decided" in table.note
    assert "then 5 to 6 fresh ones" in table.note


def test_what_was_adopted_without_a_confirmation_is_unproven(record: Record) -> None:
    result, ablation, turn = first(record)
    taken = Adoption(ablation.name, ablation.arms[2])
    greedy = dataclasses.replace(turn, confirmation=None, adoption=taken)
    assert tables.verdict_words(result, greedy)["weight_decay=0.1"] == "adopted, unproven"
    assert sentences.what_became(greedy, ablation) == sentences.adoption(taken)
    assert greedy.adopted == ablation.arms[2]


def test_every_flag_is_explained() -> None:
    known = {value for name, value in vars(flags).items() if name.isupper()}
    assert known == set(sentences.FLAGS)
