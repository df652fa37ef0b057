import json
import math

import pytest

from orchestrator.comparison import as_json, compare, compare_table, read_table
from orchestrator.decide import judge, ranking
from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Direction, Metric

ROWS = [
    ("base", 0, 0.50),
    ("base", 1, 0.52),
    ("base", 2, 0.49),
    ("wide", 0, 0.61),
    ("wide", 1, 0.62),
    ("wide", 2, 0.58),
    ("deep", 0, 0.51),
    ("deep", 1, 0.50),
    ("deep", 2, 0.48),
]


def write(path, rows, header="arm,seed,value"):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def read(path, **options):
    return compare_table(
        read_table(path), **{"baseline": "base", "direction": "max", **options}
    ).comparisons


def mistakes(path, **options):
    with pytest.raises(OrchestratorError) as told:
        read(path, **options)
    return str(told.value)


def test_a_file_is_compared_as_its_numbers_would_be(tmp_path):
    found = read(write(tmp_path / "s.csv", ROWS), delta=0.02, resolution=0.001)
    scores = {}
    for arm, seed, value in ROWS:
        scores.setdefault(arm, {})[seed] = value
    metric = Metric("value", Direction.MAX, delta=0.02, resolution=0.001)
    base = scores.pop("base")
    assert found.baseline == "base"
    assert found.arms == compare(metric, base, scores, alpha=0.05).arms


def test_diverged_and_missing_runs_are_told_by_their_status(tmp_path):
    rows = [(*row, "") for row in ROWS]
    rows[3] = ("wide", 0, "", "Diverged")
    rows[8] = ("deep", 2, 0.48, "missing")
    wide, deep = read(write(tmp_path / "s.csv", rows, "arm,seed,value,status")).arms
    assert (wide.n_pairs, wide.n_diverged) == (2, 1)
    assert (deep.n_pairs, deep.n_diverged) == (2, 0)


def test_an_arm_of_which_every_run_is_missing_still_counts(tmp_path):
    rows = [(*row, "done") for row in ROWS] + [("gone", 0, "", "missing")]
    assert read(write(tmp_path / "s.csv", rows, "arm,seed,value,status")).k == 3


def test_spreadsheet_habits_are_read(tmp_path):
    path = tmp_path / "s.csv"
    text = "\ufeffvalue, seed, arm\r\n" + "".join(f"{v}, {s}.0, {a}\r\n" for a, s, v in ROWS)
    path.write_bytes(text.encode())
    assert read(path).arms == read(write(tmp_path / "plain.csv", ROWS)).arms


def test_all_mistakes_are_told_at_once(tmp_path):
    rows = [
        *((*row, "") for row in ROWS),
        ("wide", 2, 0.7, ""),
        ("wide", "two", 0.7, ""),
        ("wide", 1.5, 0.7, ""),
        ("wide", 4, "good", ""),
        ("wide", 5, "nan", ""),
        ("wide", 6, "inf", "done"),
        ("wide", 7, 0.1, "divreged"),
        ("", 8, 0.1, ""),
        ("wide", 9),
    ]
    told = mistakes(
        write(tmp_path / "s.csv", rows, "arm,seed,value,status"),
        baseline="bsae",
        alpha=0.5,
        delta=0.0,
        resolution=-1.0,
    )
    for part in (
        "13 mistakes",
        "s.csv, line 11: arm 'wide' has seed 2 twice (first in line 7)",
        "s.csv, line 12: seed='two' is not a whole number",
        "s.csv, line 13: seed='1.5' is not a whole number",
        "s.csv, line 14: value='good' is not a finite number",
        "s.csv, line 15: value='nan' is not a finite number",
        "s.csv, line 16: value='inf' is not a finite number",
        "s.csv, line 17: status='divreged' is unknown",
        "did you mean 'diverged'?",
        "s.csv, line 18: the arm has no name",
        "s.csv, line 19: not one field for each of 4 columns",
        "no arm 'bsae'",
        "did you mean 'base'?",
        "alpha=0.5 is not between 0 and 0.5",
        "delta=0.0 is not above 0",
        "resolution=-1.0 is not 0 or more",
    ):
        assert part in told


@pytest.mark.parametrize("alpha", [0.0, -0.1, 0.5, math.nan, 5.0])
def test_a_level_outside_its_range_is_refused(tmp_path, alpha):
    assert "is not between 0 and 0.5" in mistakes(write(tmp_path / "s.csv", ROWS), alpha=alpha)


def test_wrong_columns_are_told_with_the_nearest(tmp_path):
    told = mistakes(write(tmp_path / "s.csv", ROWS, "arm,sead,value,value"))
    assert "no column 'seed'" in told
    assert "did you mean 'sead'?" in told
    assert "a column twice" in told


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no column 'arm'"),
        (b"arm,seed,value\n", "no arm 'base'"),
        (b"\xff\xfe\x00", "binary data"),
    ],
)
def test_files_without_scores_are_refused(tmp_path, content, says):
    path = tmp_path / "s.csv"
    path.write_bytes(content)
    assert says in mistakes(path)


def test_a_file_that_cannot_be_read_or_has_only_the_baseline_is_refused(tmp_path):
    assert "cannot read" in mistakes(tmp_path / "none.csv")
    assert "cannot read" in mistakes(tmp_path)
    assert "only the baseline" in mistakes(write(tmp_path / "s.csv", ROWS[:3]))


def test_at_a_planned_look_the_level_is_that_looks_own(tmp_path):
    found = read(write(tmp_path / "s.csv", ROWS), looks=(3, 5, 7, 10))
    assert found.alpha == 0.05
    assert found.level_of(found.arms[0]) == pytest.approx(0.0045)
    assert found.critical_value > read(tmp_path / "s.csv").critical_value


def test_unplanned_looks_are_refused(tmp_path):
    path = write(tmp_path / "s.csv", ROWS)
    assert "3 seeds, which is none of looks=5,10" in mistakes(path, looks=(5, 10))
    assert "looks=5,3 is not an ascending list" in mistakes(path, looks=(5, 3))
    assert "looks=2,3 is not an ascending list" in mistakes(path, looks=(2, 3))


def test_the_json_object_has_the_keys_of_the_contract_and_no_nan(tmp_path):
    rows = [*ROWS, ("lone", 0, 0.5)]
    found = read(write(tmp_path / "s.csv", rows))
    verdicts = judge(found)
    shown = json.loads(
        json.dumps(as_json(found, verdicts, ranking(found, verdicts)), allow_nan=False)
    )
    assert shown.keys() == {
        "k", "n", "nu", "critical_value", "seed_correlation", "baseline", "arms", "ranking"
    }  # fmt: skip
    assert shown["baseline"].keys() == {"mean", "sd", "n"}
    assert shown["arms"][0].keys() == {
        "arm", "n_pairs", "n_diverged", "mean_difference", "se", "t", "p_better", "p_worse",
        "p_exact_better", "p_exact_worse", "interval", "p_equivalent", "hedges_g", "glass_delta",
        "probability_superior", "pooled", "flags", "verdict", "seeds_needed",
    }  # fmt: skip
    assert shown["ranking"] == ["wide", "base", "lone", "deep"]
    lone = shown["arms"][2]
    assert (lone["se"], lone["interval"], lone["seeds_needed"]) == (None, [None, None], [3, 3])
    assert lone["verdict"] == "inconclusive"
