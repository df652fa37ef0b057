import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.comparison import as_json, compare
from orchestrator.decide import candidate, confirmed, judge, ranking
from orchestrator.nouns import AblationResult, Call, Direction, Metric, Support
from orchestrator.stats import flags

METRIC = Metric("accuracy", Direction.MAX, unit="points")
NAN = math.nan
BASE = np.array([70.1, 70.9, 69.5, 70.4, 69.9, 70.6, 70.2])


def look(*rows, base=BASE, metric=METRIC, alpha=0.05, registered=None):
    """Comparisons of rows against `base`; None is missing, NaN diverged."""
    arms = {
        f"arm{j}": {s: v for s, v in enumerate(row) if v is not None}
        for j, row in enumerate(rows, start=1)
    }
    cells = dict(enumerate(base[: max(len(row) for row in rows)]))
    return compare(metric, cells, arms, alpha=alpha, registered=registered)


def verdict(*rows, **options):
    return judge(look(*rows, **options))[0]


def shifted(by, n=5, spread=0.3, seed=0):
    return BASE[:n] + by + spread * np.random.default_rng(seed).normal(size=n)


# --- first match ----------------------------------------------------------------------------------


def test_a_clear_gain_is_better_and_says_effect_interval_p_and_n():
    said = verdict(shifted(2.0))
    assert said.call is Call.BETTER
    for part in (
        "accuracy is better by ",
        "points",
        "90 % interval",
        "p < 0.0001",
        "n = 5 seed pairs",
    ):
        assert part in said.reason
    assert "one-sided paired t" in said.reason
    assert "fresh seeds" in said.next_act


def test_a_clear_loss_is_worse():
    said = verdict(shifted(-2.0))
    assert (said.call, said.seeds_needed) == (Call.WORSE, None)


def test_nothing_visible_is_inconclusive_and_says_how_many_more_seeds():
    said = verdict(shifted(0.1, spread=1.0))
    assert said.call is Call.INCONCLUSIVE
    low, high = said.seeds_needed
    assert 0 < low < high
    assert "optimistic" in said.next_act


def test_with_a_delta_the_forecast_is_for_a_certain_verdict():
    metric = dataclasses.replace(METRIC, delta=0.5)
    found = look(shifted(0.1, spread=1.0), metric=metric)
    (said,) = judge(found)
    low, _ = said.seeds_needed
    n = low + 5
    (c,) = found.arms
    assert found.critical_value > 0
    assert 1.6 * c.se * math.sqrt(5 / n) < 0.25 < 2.2 * c.se * math.sqrt(5 / (n - 3))
    assert "must then decide" in said.next_act


def test_a_tight_interval_around_nothing_is_equivalent():
    said = verdict(shifted(0.0, spread=0.05), metric=dataclasses.replace(METRIC, delta=0.5))
    assert said.call is Call.EQUIVALENT
    assert "beyond delta" in said.reason


def test_without_a_delta_nothing_is_equivalent():
    assert verdict(shifted(0.0, spread=0.05)).call is not Call.EQUIVALENT


def test_a_gain_smaller_than_delta_is_better_but_negligible():
    said = verdict(shifted(0.2, spread=0.03), metric=dataclasses.replace(METRIC, delta=1.0))
    assert said.call is Call.BETTER
    assert "smaller than delta" in said.reason


@pytest.mark.parametrize("n", [1, 2])
def test_fewer_than_three_seeds_are_never_a_claim(n):
    (said,) = judge(look(BASE[:n] + 5 + 0.01 * np.arange(n)), alpha_screen=0.25)
    assert said.call is Call.INCONCLUSIVE
    assert said.seeds_needed[0] == 3 - n
    assert "needs 3 seed pairs" in said.reason
    assert not said.is_candidate


def test_no_common_seed_is_inconclusive():
    assert verdict([None, None], [70.0, 71.0]).call is Call.INCONCLUSIVE
    assert verdict([70.0, 71.0], base=[NAN, NAN]).call is Call.INCONCLUSIVE


def test_an_arm_that_keeps_diverging_fails():
    said = verdict([70.2, 70.8, NAN, NAN])
    assert said.call is Call.FAILED
    assert "diverged where the other did not on 2 seeds" in said.reason


def test_an_arm_that_diverges_significantly_more_often_is_worse():
    said = verdict([NAN] * 5 + [75.0, 76.0])
    assert said.call is Call.WORSE
    assert "sign test p = 0.031" in said.reason
    assert "a claim needs" not in said.reason


def test_the_sign_test_of_divergence_counts_the_family():
    assert verdict([NAN] * 5 + [75.0, 76.0], shifted(0, n=7)).call is Call.FAILED


def test_an_arm_that_diverged_once_more_is_unstable_however_good_it_looks():
    row = shifted(3.0, n=7)
    row[2] = NAN
    said = verdict(row)
    assert said.call is Call.UNSTABLE
    assert not judge(look(row), alpha_screen=0.25)[0].is_candidate


def test_a_bad_arm_that_diverged_is_worse_before_it_is_unstable():
    row = shifted(-3.0, n=7)
    row[2] = NAN
    assert verdict(row).call is Call.WORSE


def test_divergence_on_the_same_seed_as_the_baseline_bars_nothing():
    base, row = BASE.copy(), shifted(3.0, n=7)
    base[2] = row[2] = NAN
    assert verdict(row, base=base).call is Call.BETTER


def test_a_baseline_that_diverges_more_does_not_make_an_arm_better_by_itself():
    base = BASE.copy()
    base[:4] = NAN
    assert verdict(shifted(0.0, n=7, spread=1.0), base=base).call is Call.INCONCLUSIVE


# --- degenerate metrics ---------------------------------------------------------------------------


def test_an_identical_arm_is_equivalent_with_a_warning():
    said = verdict(BASE[:5].copy(), shifted(2.0))
    assert said.call is Call.EQUIVALENT
    assert "is the factor wired up?" in said.reason
    assert "reaches the training code" in said.next_act


def test_an_arm_that_equals_the_baseline_but_diverges_is_unstable():
    row = BASE.copy()
    row[3] = NAN
    assert verdict(row).call is Call.UNSTABLE


def test_equal_differences_below_five_seeds_are_inconclusive_until_five():
    said = verdict(BASE[:3] + 0.5)
    assert (said.call, said.seeds_needed) == (Call.INCONCLUSIVE, (2, 2))
    assert "fewer cannot decide" in said.next_act


def test_equal_differences_at_five_seeds_have_the_exact_p():
    said = verdict(BASE[:5] + 0.5)
    assert said.call is Call.BETTER
    assert "p = 0.031 (exact sign-flip test)" in said.reason
    assert verdict(BASE[:5] - 0.5).call is Call.WORSE


def test_equal_differences_of_an_incomplete_row_fall_back_on_its_own_signs():
    row = [*(BASE[:6] + 0.5), None]
    assert verdict(row, base=BASE).call is Call.BETTER


def test_a_coarse_metric_is_decided_by_the_exact_test():
    metric = dataclasses.replace(METRIC, resolution=2.0)
    base = np.array([70.0, 70, 72, 70, 70])
    assert verdict(base[:3] + 2, base=base, metric=metric).seeds_needed == (2, 2)
    assert verdict(base + np.array([2, 2, 2, 2, 4]), base=base, metric=metric).call is Call.BETTER
    assert (
        verdict(base + np.array([2, 0, 0, 2, 0]), base=base, metric=metric).call
        is Call.INCONCLUSIVE
    )


def test_a_coarse_incomplete_row_may_not_claim_more_than_sign_flips():
    metric = dataclasses.replace(METRIC, resolution=0.5)
    said = verdict([*(BASE[:3] + 2), None], base=BASE[:4], metric=metric)
    assert said.call is Call.INCONCLUSIVE


def test_seeds_the_baseline_lacks_are_asked_for_first():
    row = dict(enumerate(shifted(0.1, spread=1.0))) | {99: 70.0}
    found = compare(METRIC, dict(enumerate(BASE[:5])), {"arm1": row}, alpha=0.05)
    assert judge(found)[0].next_act.startswith("run the missing baseline seeds")


def test_a_difference_of_nothing_is_not_promised_a_verdict():
    said = verdict(BASE[:4] + np.array([1.0, -1.0, 1.0, -1.0]))
    assert "no affordable number of seeds" in said.next_act


# --- campaign -----------------------------------------------------------------------------------


def result(name, *rows, **options):
    found = look(*rows, **options)
    said = judge(found, alpha_screen=0.2)
    return AblationResult(name, found, None, said, Support.INCONCLUSIVE, "", ranking(found, said))


def test_a_candidate_passes_the_screening_level_and_is_called_unconfirmed():
    said = judge(look(shifted(0.5, n=3, spread=0.8, seed=2)), alpha_screen=0.2)[0]
    assert said.call is Call.INCONCLUSIVE
    assert said.is_candidate
    assert "unconfirmed" in said.next_act
    assert not judge(look(shifted(0.5, n=3, spread=0.8, seed=2)))[0].is_candidate


def test_better_above_a_strict_screening_level_is_no_candidate():
    said = judge(look(shifted(0.7, spread=0.4)), alpha_screen=1e-4)[0]
    assert said.call is Call.BETTER
    assert not said.is_candidate
    assert "screening" in said.next_act


def test_the_candidate_with_the_largest_difference_of_all_ablations_is_confirmed():
    results = [
        result("lr", shifted(1.0), shifted(2.0, seed=1)),
        result("decay", shifted(3.0, seed=2), shifted(-2.0)),
    ]
    assert candidate(results) == ("decay", "arm1")
    assert candidate([result("lr", shifted(-1.0))]) is None
    assert candidate([]) is None


def test_the_ranking_puts_unstable_and_failed_arms_last():
    unstable = shifted(9.0, n=7)
    unstable[0] = NAN
    failed = [NAN] * 5 + [99.0, 99.0]
    found = look(unstable, shifted(1.0, n=7), shifted(-1.0, n=7), failed, [None] * 7)
    assert ranking(found, judge(found))[:3] == ("arm2", "baseline", "arm3")


def test_the_ranking_follows_the_direction():
    found = look(shifted(1.0), shifted(-1.0), metric=Metric("loss", Direction.MIN))
    assert ranking(found, judge(found)) == ("arm2", "baseline", "arm1")


def test_a_gain_that_holds_on_fresh_seeds_is_confirmed():
    held, why = confirmed(look(shifted(2.0)))
    assert held
    assert why.startswith("confirmed on fresh seeds (p < 0.0001, level 0.05)")
    held, why = confirmed(look(shifted(0.05, spread=1.0)))
    assert not held
    assert why.startswith("not confirmed")


def test_a_winner_that_diverges_on_fresh_seeds_is_not_confirmed():
    row = shifted(3.0, n=7)
    row[1] = NAN
    held, why = confirmed(look(row))
    assert not held
    assert "diverged on 1 fresh seeds" in why


def test_two_fresh_pairs_confirm_nothing():
    assert confirmed(look(BASE[:2] + np.array([2.0, 2.01])))[0] is False


def test_zero_variance_on_fresh_seeds_is_judged_by_signs():
    assert confirmed(look(BASE[:4] + 1.0))[0] is False
    assert confirmed(look(BASE[:5] + 1.0))[0] is True


# --- divergence -----------------------------------------------------------------------------------


def test_barring_diverging_arms_holds_the_level_that_dropping_their_seeds_breaks():
    """The worst fifth of the arm's runs diverges; otherwise it equals the baseline."""
    rng = np.random.default_rng(5)
    dropped, barred, total, n = 0, 0, 1500, 10
    for _ in range(total):
        base, row = rng.normal(size=n), rng.normal(size=n)
        row[row < -0.8416] = NAN
        found = look(row, base=base)
        dropped += found.arms[0].p_better <= 0.05
        barred += judge(found)[0].call is Call.BETTER
    assert dropped / total > 0.10
    assert barred / total < 0.05


def test_flags_reach_the_reason():
    d = np.array([3.0, 3.1, 2.9, 3.0, -0.4])
    found = look(BASE[:5] + d)
    assert flags.FRAGILE in found.arms[0].flags
    assert "fragile" in judge(found)[0].reason


# --- anything goes --------------------------------------------------------------------------------

ODD = st.sampled_from(
    [None, NAN, math.inf, -math.inf, 0.0, 1.0, 1.0, 1.5, 0.1 + 0.2, 0.3, 1e9, 1e99]
)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 14).flatmap(
        lambda n: st.lists(st.lists(ODD, min_size=n, max_size=n), min_size=1, max_size=5)
    ),
    st.sampled_from([None, 0.5]),
    st.sampled_from([0.0, 0.5, 3.0]),
    st.sampled_from([Direction.MIN, Direction.MAX]),
)
def test_no_legal_input_raises_or_warns(table, delta, resolution, direction):
    metric = Metric("x", direction, delta=delta, resolution=resolution)
    rows = [{s: v for s, v in enumerate(row) if v is not None} for row in table]
    arms = {f"arm{j}": row for j, row in enumerate(rows[1:])}
    found = compare(metric, rows[0], arms, alpha=0.05)
    verdicts = judge(found, alpha_screen=0.2)
    assert sorted(ranking(found, verdicts)) == sorted([*arms, "baseline"])
    json.dumps(as_json(found, verdicts, ranking(found, verdicts)), allow_nan=False)
    for c, said in zip(found.arms, verdicts, strict=True):
        assert (said.seeds_needed is None) == (said.call is not Call.INCONCLUSIVE)
        assert said.seeds_needed is None or 0 < said.seeds_needed[0] <= said.seeds_needed[1]
        arm, base = c.n_only_arm_diverged, c.n_only_baseline_diverged
        if arm > base or (c.n_pairs < 3 and base == 0):
            assert said.call not in (Call.BETTER, Call.EQUIVALENT)
            assert not said.is_candidate
        assert "nan" not in said.reason + said.next_act
        confirmed(dataclasses.replace(found, arms=(c,)))


def rescue(dead, n, *, k=1):
    """The baseline diverges on the first `dead` of `n` seeds, the `k` arms on none."""
    baseline = {s: math.nan if s < dead else 1.0 + 0.01 * s for s in range(n)}
    arms = {f"arm{j}": {s: 1.0 + j + 0.013 * s * s for s in range(n)} for j in range(1, k + 1)}
    return compare(Metric("accuracy", Direction.MAX), baseline, arms, alpha=0.05)


def test_an_arm_that_lives_where_the_baseline_always_diverges_can_win_by_the_sign_test():
    (said,) = judge(rescue(5, 5))  # p = 2^-5
    assert said.call is Call.BETTER
    assert "sign test on which runs diverged" in said.reason
    (said,) = judge(rescue(4, 4))  # p = 2^-4: not enough
    assert said.call is Call.INCONCLUSIVE


def test_rescuers_pay_for_their_number_and_the_best_mean_goes_first():
    of = rescue(5, 5, k=3)
    verdicts = judge(of, alpha_screen=0.1)
    assert all(v.call is Call.INCONCLUSIVE and v.is_candidate for v in verdicts)  # 3 x 2^-5
    assert ranking(of, verdicts) == ("arm3", "arm2", "arm1", "baseline")
    result = AblationResult("lr", of, None, verdicts, Support.INCONCLUSIVE, "", ())
    assert candidate([result]) == ("lr", "arm3")


def test_with_three_pairs_the_means_decide_and_divergences_alone_do_not():
    baseline = {s: math.nan if s < 7 else 1.0 + 0.01 * s for s in range(10)}
    arm = {s: 1.0 + 0.01 * s + 0.02 * (-1) ** s for s in range(10)}
    (said,) = judge(compare(METRIC, baseline, {"arm1": arm}, alpha=0.05))
    assert said.call is Call.INCONCLUSIVE


def test_a_rescuer_is_confirmed_on_fresh_seeds():
    held, why = confirmed(rescue(10, 10))
    assert held
    assert "baseline 10" in why
