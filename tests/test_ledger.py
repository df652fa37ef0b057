import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import OrchestratorError
from orchestrator.ledger import FILE, Ledger, decode, encode
from orchestrator.nouns import Arm, Finding, Interval, Move, Outcome, Status, Verdict

finite = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), finite, st.text())


@given(st.lists(st.tuples(st.text(), scalars)))
def test_an_arm_survives_the_round_trip_with_every_kind_of_value(pairs):
    arm = Arm("a", tuple(pairs))
    back = decode(Arm, json.loads(json.dumps(encode(arm), allow_nan=False)))
    assert back == arm
    assert [type(v) for _, v in back.overrides] == [type(v) for _, v in arm.overrides]


@given(finite | st.just(math.inf) | st.just(-math.inf))
def test_infinite_numbers_survive(value):
    assert decode(Interval, encode(Interval(value, math.inf))) == Interval(value, math.inf)


def test_nan_survives_in_strict_json():
    outcome = Outcome("id", Status.DIVERGED, {"val/loss": math.nan}, 1.0, 1)
    text = json.dumps(encode(outcome), allow_nan=False)
    back = decode(Outcome, json.loads(text))
    assert math.isnan(back.metrics["val/loss"])
    assert back.status is Status.DIVERGED


def test_nested_nouns_enums_and_optional_tuples_survive():
    finding = Finding("r", 0.5, "s", (1, 2), evidence={"gap": 0.25, "column": "val/loss"})
    assert decode(Finding, encode(finding)) == finding
    verdict = Verdict("a", decode(type(Move.UP), "up"), "why", "next", seeds_needed=(3, 9))  # type: ignore[arg-type]
    assert encode(verdict)["seeds_needed"] == [3, 9]


def test_a_field_the_text_lacks_takes_its_default():
    data = encode(Outcome("id", Status.DONE, {}, 1.0, 1))
    del data["reason"]
    assert decode(Outcome, data).reason == ""


def test_a_step_is_done_once_and_read_back_on_resume(tmp_path):
    ledger = Ledger(tmp_path)
    assert ledger.once("a", int, lambda: 1) == 1
    ledger.close()
    again = Ledger(tmp_path)
    assert again.once("a", int, lambda: pytest.fail("done before")) == 1
    again.close()


def test_a_line_cut_short_by_a_kill_was_not_done(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.add("a", 1)
    ledger.add("b", 2)
    ledger.close()
    whole = (tmp_path / FILE).read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole)):
        (tmp_path / FILE).write_bytes(whole[:cut])
        resumed = Ledger(tmp_path)
        assert list(resumed.steps()) == ["a"]
        resumed.add("b", 3)
        resumed.close()
        assert Ledger(tmp_path, writable=False).get("b", int) == 3


def test_a_second_run_in_the_same_folder_is_refused(tmp_path):
    ledger = Ledger(tmp_path)
    with pytest.raises(OrchestratorError, match="in use"):
        Ledger(tmp_path)
    ledger.close()
    Ledger(tmp_path).close()


def test_a_damaged_line_in_the_middle_names_itself(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.add("a", 1)
    ledger.close()
    text = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text("{broken\n" + text)
    with pytest.raises(OrchestratorError, match="line 1"):
        Ledger(tmp_path)


def test_what_no_reader_could_restore_is_refused():
    @dataclasses.dataclass(frozen=True)
    class Odd:
        value: object

    with pytest.raises(TypeError, match="set"):
        encode(Odd({1}))
