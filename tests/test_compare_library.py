"""`orchestrator.compare`: against a second derivation, under what must not matter, at the edges."""

import dataclasses
import inspect
import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import orchestrator
from orchestrator import OrchestratorError, compare
from orchestrator.nouns import Call
from tests.stats.reference import guarded as slow
from tests.stats.reference import sign_flips

PAGE = (Path(__file__).parent.parent / "docs" / "statistics.md").read_text(encoding="utf-8")


def table(seed, arms=3, seeds=6, *, missing=0.0, diverged=0.0):
    """Scores [arms + 1, seeds] and the word for what is not a number; the baseline is complete."""
    rng = np.random.default_rng(seed)
    values = 0.5 * rng.normal(size=seeds) + rng.normal(size=(arms + 1, seeds))
    values[1:] += 0.4 * rng.normal(size=(arms, 1))
    drawn = rng.random(values.shape)
    drawn[0] = 1.0
    words = np.where(
        drawn < missing, "missing", np.where(drawn < missing + diverged, "diverged", "")
    )
    return values, words


def frame(values, words=None):
    """A long frame of scores, baseline "arm0"."""
    rows = [
        (f"arm{a}", s, values[a, s], "" if words is None else words[a, s])
        for a, s in np.ndindex(values.shape)
    ]
    return pd.DataFrame(rows, columns=["arm", "seed", "value", "status"])


def run(data, direction="max", **options):
    return compare(data, baseline="arm0", direction=direction, **options)


def numbers(result):
    """Every number of the contract [arms], by arm."""
    return {
        a["arm"]: np.array(
            [
                math.nan if x is None else float(x)
                for key, value in a.items()
                if key not in ("arm", "flags", "verdict")
                for x in (value if isinstance(value, list) else [value])
            ]
        )
        for a in (arm | {"seeds_needed": None} for arm in result.as_json()["arms"])
    }


# --- a second derivation --------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["max", "min"])
@pytest.mark.parametrize("seed", range(6))
def test_every_number_agrees_with_a_second_derivation(seed, direction):
    kind = ({}, {"missing": 0.12}, {"missing": 0.08, "diverged": 0.08})[seed % 3]
    values, words = table(seed, arms=1 + seed, seeds=7, **kind)
    found = run(frame(values, words), direction, delta=0.8)
    oriented = np.where(words == "", values if direction == "max" else -values, np.nan)
    diverged = words == "diverged"
    k = len(values) - 1
    expected = slow(oriented, diverged, k, 0.05, delta=0.8)
    shared = found.comparisons
    assert (shared.k, shared.n, shared.nu) == (k, 7, expected["nu"])
    assert shared.baseline_mean == pytest.approx(values[0].mean(), rel=1e-9)
    assert shared.baseline_sd == pytest.approx(values[0].std(ddof=1), rel=1e-9)
    whole = [j for j in range(k) if np.isfinite(oriented[j + 1]).all()]
    d = oriented[1:] - oriented[0]
    flips = [sign_flips(sign * d[whole]) for sign in (1, -1)] if whole else [[], []]
    for j in range(k):
        c, own = found.comparison(f"arm{j + 1}"), d[j][np.isfinite(d[j])]
        runs = oriented[j + 1][np.isfinite(oriented[j + 1])]
        assert c.n_pairs == len(own)
        assert c.n_diverged == diverged[j + 1].sum()
        assert c.mean_difference == pytest.approx(expected["mean"][j], rel=1e-9)
        assert c.se == pytest.approx(expected["se"][j], rel=1e-9)
        assert c.t == pytest.approx(expected["mean"][j] / expected["se"][j], rel=1e-9)
        assert c.pooled == expected["pooled"][j]
        assert c.p_better == pytest.approx(expected["better"][j], abs=1e-4)
        assert c.p_worse == pytest.approx(expected["worse"][j], abs=1e-4)
        assert c.p_equivalent == pytest.approx(expected["equivalent"][j], abs=1e-4)
        half = (c.interval.high - c.interval.low) / 2
        assert expected["beyond"](j, half / c.se) == pytest.approx(0, abs=1e-4)
        factor = math.gamma((len(own) - 1) / 2) / (
            math.sqrt((len(own) - 1) / 2) * math.gamma((len(own) - 2) / 2)
        )
        assert c.hedges_g == pytest.approx(own.mean() / own.std(ddof=1) * factor, rel=1e-9)
        baseline = math.gamma(3) / (math.sqrt(3) * math.gamma(2.5))  # 6 degrees of freedom
        glass = own.mean() / oriented[0].std(ddof=1) * baseline
        assert c.glass_delta == pytest.approx(glass, rel=1e-9)
        u = stats.mannwhitneyu(runs, oriented[0]).statistic
        assert c.probability_superior == pytest.approx(u / (len(runs) * 7), rel=1e-9)
        if j in whole:
            assert c.p_exact_better == pytest.approx(flips[0][whole.index(j)], abs=1e-12)
            assert c.p_exact_worse == pytest.approx(flips[1][whole.index(j)], abs=1e-12)
        else:
            assert c.p_exact_better is c.p_exact_worse is None


def test_one_arm_is_scipys_paired_t_test():
    values, _ = table(7, arms=1)
    c = run(frame(values), "min", alpha=0.025).comparison("arm1")
    expected = stats.ttest_rel(values[0], values[1], alternative="greater")
    interval = stats.ttest_rel(values[0], values[1]).confidence_interval(0.95)
    assert c.p_better == pytest.approx(expected.pvalue, rel=1e-9)
    assert c.t == pytest.approx(expected.statistic, rel=1e-9)
    assert (c.interval.low, c.interval.high) == pytest.approx(tuple(interval), rel=1e-9)


# --- what must not matter -------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 999), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(seed, random):
    data = frame(*table(seed, missing=0.1, diverged=0.1))
    rows = list(range(len(data)))
    random.shuffle(rows)
    one, other = run(data, delta=0.5), run(data.iloc[rows], delta=0.5)
    assert {v.arm: v.call for v in one.verdicts} == {v.arm: v.call for v in other.verdicts}
    assert one.ranking == other.ranking
    for arm, expected in numbers(one).items():
        np.testing.assert_allclose(numbers(other)[arm], expected, rtol=1e-9, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 999), st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
def test_origin_and_unit_of_the_metric_do_not_matter(seed, shift, scale):
    values, words = table(seed, missing=0.1, diverged=0.05)
    one = run(frame(values, words), delta=0.5)
    other = run(frame(scale * values + shift, words), delta=0.5 * scale)
    assert [v.call for v in one.verdicts] == [v.call for v in other.verdicts]
    for a, b in zip(one.comparisons.arms, other.comparisons.arms, strict=True):
        assert (b.p_better, b.p_worse) == pytest.approx(
            (a.p_better, a.p_worse), rel=1e-6, nan_ok=True
        )
        assert b.p_exact_better == a.p_exact_better
        assert b.mean_difference == pytest.approx(scale * a.mean_difference, rel=1e-6, abs=1e-9)
        assert b.se == pytest.approx(scale * a.se, rel=1e-6, nan_ok=True)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 999))
def test_to_swap_the_direction_swaps_better_and_worse_exactly(seed):
    values, words = table(seed, missing=0.1)
    up, down = run(frame(values, words), "max"), run(frame(values, words), "min")
    mirrored = run(frame(-values, words), "min")
    for a, b, c in zip(up.comparisons.arms, down.comparisons.arms, mirrored.comparisons.arms,
                       strict=True):  # fmt: skip
        assert (a.p_better, a.p_worse) == (b.p_worse, b.p_better)
        assert (a.p_exact_better, a.p_exact_worse) == (b.p_exact_worse, b.p_exact_better)
        assert a.mean_difference == -b.mean_difference
        assert (c.p_better, c.mean_difference) == (a.p_better, a.mean_difference)


# --- the edges ------------------------------------------------------------------------------------


def calls(scores, **options):
    found = compare(scores, baseline="base", direction="max", **options)
    return {v.arm: v for v in found.verdicts}


STEADY = {0: 0.50, 1: 0.52, 2: 0.49, 3: 0.51, 4: 0.505}


def test_one_seed_is_never_a_claim_and_says_how_many_are_needed():
    verdict = calls({"base": {0: 0.5}, "a": {0: 0.9}})["a"]
    assert verdict.call is Call.INCONCLUSIVE
    assert "a claim needs 3 seed pairs" in verdict.reason
    assert verdict.seeds_needed == (2, 2)


def test_seeds_that_do_not_match_are_told():
    verdict = calls({"base": STEADY, "a": {s + 3: v for s, v in STEADY.items()}})["a"]
    assert verdict.call is Call.INCONCLUSIVE
    assert "the baseline has no result on them" in verdict.reason
    assert verdict.next_act.startswith("run the missing baseline seeds")


def test_a_constant_metric_asks_whether_the_factor_is_wired_up():
    same = dict.fromkeys(range(5), 0.7)
    verdict = calls({"base": same, "a": same})["a"]
    assert verdict.call is Call.EQUIVALENT
    assert "is the factor wired up?" in verdict.reason


def test_arms_that_all_diverged_are_worse_or_failed():
    lost = dict.fromkeys(range(5), "diverged")
    assert calls({"base": STEADY, "a": lost})["a"].call is Call.WORSE
    few = {s: v for s, v in STEADY.items() if s < 3}
    found = calls({"base": few, "a": {s: lost[s] for s in few}})
    assert found["a"].call is Call.FAILED
    both = calls({"base": lost, "a": lost})["a"]
    assert both.call is Call.INCONCLUSIVE


def test_not_worse_by_delta_is_a_flag():
    a = {s: v + 0.004 * (-1) ** s for s, v in STEADY.items()}
    found = compare({"base": STEADY, "a": a}, baseline="base", direction="max", delta=0.02)
    assert "not_worse_by_delta" in found.comparison("a").flags


# --- the result -----------------------------------------------------------------------------------


def test_the_result_is_frozen_and_knows_its_arms():
    found = run(frame(*table(1)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.notes = ()
    assert found.comparison("arm2").arm == found.verdict("arm2").arm == "arm2"
    with pytest.raises(OrchestratorError, match=r"no arm 'arm9'.*\n.*valid: arm1, arm2, arm3"):
        found.verdict("arm9")
    with pytest.raises(OrchestratorError, match="no arm 'arm0'"):
        found.differences("arm0")
    assert json.dumps(found.as_json(), allow_nan=False)


def test_differences_are_by_seed_in_the_metrics_own_direction():
    scores = {"base": {0: 1.0, 1: 2.0, 2: 3.0}, "a": {1: 1.5, 2: "diverged", 3: 1.0}}
    found = compare(scores, baseline="base", direction="min")
    assert found.differences("a") == {1: -0.5}


def test_the_doc_string_names_every_argument():
    told = compare.__doc__
    for name in inspect.signature(compare).parameters:
        assert re.search(rf"^        {name}: ", told, re.MULTILINE), name
    for word in ("Returns:", "Raises:", "References:", "[arms, seeds]", "unit of the values"):
        assert word in told
    assert orchestrator.compare is compare


def test_the_programs_of_the_page_do_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", PAGE, re.DOTALL)
    assert programs
    for program, output in programs:
        exec(program, {})
        assert capsys.readouterr().out == output
    assert (tmp_path / "forest.svg").read_text().startswith("<?xml")
