"""Scores as people keep them: dialects, forms, formats; and what is wrong with them."""

import io
import json
import math
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.comparison import compare_table, from_frame, from_mapping, read_table, table_in
from orchestrator.comparison.scores import MOST_TOLD, read_scores
from orchestrator.errors import OrchestratorError
from orchestrator.score_nouns import Columns

ROWS = [("base", 0, 0.50), ("base", 1, 0.52), ("wide", 0, 0.61), ("wide", 1, 0.625)]
SCORES = {"base": {0: 0.50, 1: 0.52}, "wide": {0: 0.61, 1: 0.625}}
LONG = "arm,seed,value\n" + "".join(f"{a},{s},{v}\n" for a, s, v in ROWS)
FRAME = pd.DataFrame(ROWS, columns=["arm", "seed", "value"])


def scores(data, columns=None):
    """The scores in bytes, text or a frame; every mistake is an error."""
    if isinstance(data, pd.DataFrame):
        table = from_frame(data, "t", columns or Columns())
    else:
        data = data.encode() if isinstance(data, str) else data
        table = table_in(data, "t", columns or Columns())
    found = read_scores(table)
    assert not found.mistakes, found.mistakes
    return found.scores


def mistakes(data, **options):
    """What is told of a comparison with `base`."""

    def compared():
        if isinstance(data, pd.DataFrame):
            table = from_frame(data, "t")
        else:
            table = table_in(data.encode() if isinstance(data, str) else data, "t")
        compare_table(table, **{"baseline": "base", "direction": "max", **options})

    with pytest.raises(OrchestratorError) as told:
        compared()
    return str(told.value)


# --- dialects -------------------------------------------------------------------------------------

SEMICOLONS = LONG.replace(",", ";").replace(".", ",")


@pytest.mark.parametrize(
    "data",
    [
        LONG.encode(),
        LONG.encode("utf-8-sig"),
        LONG.encode("utf-16"),
        LONG.encode("utf-16-le"),
        LONG.replace("\n", "\r\n").encode(),
        LONG.replace("\n", "\r").encode(),
        LONG.replace(",", "\t").encode(),
        LONG.replace(",", " | ").encode(),
        LONG.replace(",", ";").encode(),
        SEMICOLONS.replace("\n", "\r\n").encode("utf-16"),
        b"sep=;\r\n" + SEMICOLONS.encode(),
        b"\n" + LONG.replace("\n", "\n\n").encode() + b",,\n",
        LONG.replace("arm,seed", "Arm, Seed ").encode(),
        LONG.replace("base", '"base"').encode(),
        LONG.replace("\n", ",\n").encode(),
        ("," + LONG.replace("\n", "\n7,").removesuffix("7,")).encode(),
    ],
    ids=[
        "plain", "BOM", "UTF-16", "UTF-16 without BOM", "CRLF", "CR", "tabs", "bars", "semicolons",
        "decimal commas", "sep line", "blank lines", "capitals", "quotes", "surplus delimiter",
        "index column",
    ],
)  # fmt: skip
def test_every_dialect_says_the_same(data):
    assert scores(data) == SCORES


def test_decimal_commas_are_not_guessed_where_points_are_used():
    told = mistakes("arm;seed;value\nbase;0;0.5\nwide;0;1,234\n")
    assert "line 3: value='1,234' is not a finite number" in told


def test_a_name_may_hold_any_character():
    name = 'a "b", c\nd|é$_&'
    text = LONG.replace("wide", '"' + name.replace('"', '""') + '"')
    assert scores(text) == {"base": SCORES["base"], name: SCORES["wide"]}


def test_seeds_beyond_what_a_float_can_hold_stay_apart():
    big = 2**53
    found = scores(f"arm,seed,value\nbase,{big},1\nbase,{big + 1},2\n")
    assert found == {"base": {big: 1.0, big + 1: 2.0}}


# --- forms ----------------------------------------------------------------------------------------


def test_columns_may_have_other_names():
    text = LONG.replace("arm,seed,value", "model,rng,acc")
    assert scores(text, Columns("model", "rng", "acc")) == SCORES


def test_arms_may_be_columns():
    text = "seed,base,wide,gone\n0,0.5,0.61,\n1,0.52,0.625,diverged\n"
    found = scores(text)
    assert math.isnan(found["gone"].pop(1))
    assert found == SCORES | {"gone": {}}


def test_seeds_may_be_columns():
    for names in ("0,1", "seed_0,seed_1", "Seed 0,seed=1"):
        assert scores(f"arm,{names}\nbase,0.5,0.52\nwide,0.61,0.625\n") == SCORES


def test_columns_that_are_not_used_are_told():
    rows = "arm,seed,value,lr\n" + "".join(f"{a},{s},{v},0.1\n" for a, s, v in ROWS)
    found = read_scores(table_in(rows.encode(), "t"))
    assert found.scores == SCORES
    assert found.notes == ("columns not used: lr",)


def test_a_misspelt_status_column_is_not_overlooked():
    text = "arm,seed,value,stauts\nbase,0,1,done\nwide,0,1,diverged\n"
    assert "column 'stauts', which may be the status" in mistakes(text)


# --- formats --------------------------------------------------------------------------------------


def written(form):
    buffer = io.BytesIO()
    getattr(FRAME, f"to_{form}")(buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        written("parquet"),
        written("feather"),
        FRAME.to_json(orient="records").encode(),
        FRAME.to_json(orient="records", lines=True).encode(),
        FRAME.to_json(orient="records", indent=2).encode("utf-16"),
        json.dumps(SCORES).encode(),
        json.dumps({c: FRAME[c].tolist() for c in FRAME}).encode(),
    ],
    ids=["Parquet", "Feather", "JSON", "JSON Lines", "JSON in UTF-16", "by arm", "by column"],
)
def test_every_format_says_the_same(data):
    assert scores(data) == SCORES


def test_a_frame_is_read_in_every_form():
    assert scores(FRAME) == SCORES
    assert scores(FRAME.astype({"arm": "category", "seed": float})) == SCORES
    assert scores(FRAME.set_index(["arm", "seed"])) == SCORES
    assert scores(FRAME.pivot(index="seed", columns="arm", values="value")) == SCORES
    assert scores(FRAME.pivot(index="arm", columns="seed", values="value")) == SCORES
    assert scores(pd.DataFrame({a: list(v.values()) for a, v in SCORES.items()})) == SCORES
    assert read_scores(from_mapping(SCORES, "t")).scores == SCORES


def test_arms_may_be_numbers():
    frame = FRAME.replace({"arm": {"base": "0.1", "wide": "0.3"}}).astype({"arm": float})
    assert scores(frame).keys() == {"0.1", "0.3"}


def test_the_nan_of_a_frame_has_to_be_explained():
    frame = pd.DataFrame({"base": [0.5, 0.6, 0.4], "wide": [0.5, np.nan, np.inf]})
    told = mistakes(frame)
    assert "2 mistakes" in told
    assert "row 2, column 'wide': value=nan is not a finite number" in told
    assert "give diverged, for a run that blew up, or missing" in told
    explained = frame.astype(object)
    explained.loc[1:, "wide"] = ["missing", "diverged"]
    found = scores(explained)["wide"]
    assert found.keys() == {0, 2}
    assert math.isnan(found[2])


def test_a_status_explains_a_nan_of_any_kind():
    frame = FRAME.assign(status=[None, "done", "diverged", pd.NA])
    frame.loc[2, "value"] = np.nan
    found = scores(frame)
    assert math.isnan(found["wide"].pop(0))
    assert found == {"base": SCORES["base"], "wide": {1: 0.625}}


def test_excel_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    sheet = io.BytesIO()
    with zipfile.ZipFile(sheet, "w") as archive:
        archive.writestr("xl/workbook.xml", "")
    assert "pip install openpyxl, or export the sheet as CSV" in mistakes(sheet.getvalue())


# --- what is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "no column 'arm'"),
        (b"\x00\x01\x02\x03" * 9, "holds binary data"),
        (b"\x1f\x8b\x08\x00", "compressed with gzip"),
        (b"PAR1 and no more", "cannot be read"),
        (b"ARROW1 and no more", "cannot be read"),
        (b'arm,seed,value\nbase,0,"0.5\n', "is not CSV"),
        (b"[1, 2]", "is JSON, but no table"),
        (b"{}", "is JSON, but no table"),
        (b'{"base": 1}', "is JSON, but no table"),
        (b'{"a": [1], "b": [1, 2]}', "is JSON, but no table"),
        (b'{"base": {"0": 1, "0": 2}}', "an object has a key twice: 0"),
        (b'[{"arm": "base"', "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'[{"arm": "base", "seed": 0, "value": null}]', "value=None is not a finite number"),
        (b'[{"arm": "base", "seed": 0, "value": NaN}]', "value=nan is not a finite number"),
        (b'[{"arm": "base", "seed": 0, "value": true}]', "value=True is not a finite number"),
        (b'[{"arm": "base", "seed": true, "value": 1}]', "seed='True' is not a whole number"),
        (b"seed,base,base\n0,1,2\n", "has a column twice: base"),
        (b"arm,mean,0\nbase,1,2\n", "seed='mean' is not a whole number"),
        (b"arm,seed\nbase,0\n", "no column 'value'\n  -> name it with --metric"),
    ],
)
def test_what_is_no_table_of_scores_is_told(data, told):
    assert told in mistakes(data)


def test_a_baseline_that_is_named_twice_is_told():
    text = LONG.replace("wide,0", "Base ,0")
    assert "names the baseline twice: 'base' and 'Base'" in mistakes(text)


def test_a_baseline_and_a_direction_have_to_be_known():
    told = mistakes(LONG, baseline=None, direction=None)
    assert "which arm is the baseline?\n  -> valid: base, wide" in told
    assert "the direction of the metric is not known" in told
    assert "did you mean 'max'" in mistakes(LONG, direction="mx")


def test_an_arm_whose_runs_are_all_wrong_is_not_called_missing_as_well():
    told = mistakes("arm,seed,value\nbase,0,nan\nwide,0,0.5\nwide,1,x\n")
    assert told.startswith("2 mistakes")
    assert "no arm" not in told


def test_thousands_of_wrong_rows_are_told_in_brief():
    rows = "".join(f"wide,{s},nan\n" for s in range(5000))
    told = mistakes(LONG + rows.replace("wide,0,", "wide,x,"))
    assert told.startswith(f"{MOST_TOLD + 1} mistakes")
    assert "t: and 4980 more rows" in told
    assert len(told) < 5000
    names = "".join(f"arm{i},0,1\n" for i in range(5000))
    assert len(mistakes(LONG + names, baseline="bsae")) < 1000


def test_a_file_that_is_not_there_or_a_folder_is_told(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(OrchestratorError, match="cannot read"):
            read_table(path)


CELL = st.one_of(
    st.sampled_from(["", "base", "wide", "0", "1", "2", "nan", "inf", "diverged", "1,5", "-1e400"]),
    st.floats().map(str),
    st.integers().map(str),
    st.text(max_size=4),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["arm,seed,value", "arm,seed,value,status", "seed,base,wide", "arm,0,1,2"]),
    st.lists(st.lists(CELL, min_size=2, max_size=5), max_size=12),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_no_table_ends_in_anything_but_an_answer_or_a_mistake(header, rows, delimiter, encoding):
    lines = [header.replace(",", delimiter), *(delimiter.join(row) for row in rows)]
    data = "\n".join(lines).encode(encoding, "replace")
    try:
        found = compare_table(table_in(data, "t"), baseline="base", direction="max")
    except OrchestratorError:
        return
    assert {c.arm for c in found.comparisons.arms} == set(found.scores) - {"base"}


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"arm,seed,value\n", b"PAR1", b"[", b"PK\x03\x04"]),
)
def test_no_bytes_end_in_anything_but_a_mistake(data, start):
    with pytest.raises(OrchestratorError):
        compare_table(table_in(start + data, "t"), baseline="no such arm", direction="max")
