from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from orchestrator import report
from orchestrator.nouns import Direction, Page, Status
from orchestrator.track.node import Node
from orchestrator.track.tree import tree
from tests import records


def nodes_of(record, pages=None) -> dict[str, Node]:
    return {n.name: n for n in tree(record, pages or {})}


@pytest.fixture
def nodes(tmp_path: Path) -> dict[str, Node]:
    return nodes_of(records.finished(tmp_path))


def test_parents_come_before_their_children(tmp_path: Path) -> None:
    seen: set[str] = set()
    for node in tree(records.finished(tmp_path), {}):
        assert node.parent is None or node.parent in seen
        assert node.id not in seen
        seen.add(node.id)


def test_names_sort_in_reading_order(tmp_path: Path) -> None:
    names = [n.name for n in tree(records.finished(tmp_path), {}) if n.kind != "trial"]
    last = names.index("headline final against original")
    chronological = [names[0], *names[last:], *names[1:last]]
    assert chronological == sorted(names)
    assert names[:5] == [
        "campaign digits-overfitting",
        "r1-a0 baseline",
        "r1-a1 weight_decay",
        "r1-a1.1 weight_decay=0.001",
        "r1-a1.2 weight_decay=0.01",
    ]


def test_siblings_start_in_reading_order(tmp_path: Path) -> None:
    record = records.finished(tmp_path)
    record = dataclasses.replace(  # as if everything had begun at once
        record,
        outcomes={i: dataclasses.replace(o, started=1e9) for i, o in record.outcomes.items()},
    )
    arms = [n for n in tree(record, {}) if n.kind == "arm" and n.id.startswith("r1/weight")]
    starts = [n.start for n in arms]
    assert len(arms) == 4
    assert starts == sorted(set(starts))


def test_params_are_only_what_differs_from_the_baseline(nodes: dict[str, Node]) -> None:
    assert nodes["r1-a0 baseline"].params == {}
    assert nodes["r1-a1.3 weight_decay=0.1"].params == {"optimizer.weight_decay": "0.1"}
    assert nodes["r1-a1.3 weight_decay=0.1 seed 002"].params == {
        "optimizer.weight_decay": "0.1",
        "seed": "2",
    }
    assert nodes["r2-a0 baseline"].params == {}, "its weight decay was adopted"
    assert nodes["headline.2 final"].params == {"optimizer.weight_decay": "0.1"}


def test_only_trials_carry_the_arm_tag_since_grouping_counts_parents(
    nodes: dict[str, Node],
) -> None:
    assert {n.kind for n in nodes.values() if "arm" in n.tags} == {"trial"}
    assert nodes["r1-a2.1 dropout=0.2 seed 000"].tags["arm"] == "r1-a2.1 dropout=0.2"


def test_an_arm_has_its_statistics_under_names_of_their_own(tmp_path: Path) -> None:
    record = records.finished(tmp_path)
    compared = record.rounds[0].results[0].comparisons.arms[2]
    metrics = nodes_of(record)["r1-a1.3 weight_decay=0.1"].metrics
    assert metrics["val/loss.difference"] == pytest.approx(-compared.mean_difference, rel=1e-3)
    assert metrics["val/loss.ci_low"] == pytest.approx(-compared.interval.high, rel=1e-3)
    assert metrics["val/loss.ci_low"] < metrics["val/loss.difference"] < 0
    assert metrics["val/loss.p_adjusted"] == pytest.approx(compared.p_better, rel=1e-3)
    assert metrics["n"] == 5
    assert "val/loss" not in metrics


def test_the_difference_of_a_metric_to_maximise_keeps_its_sign(tmp_path: Path) -> None:
    record = records.finished(tmp_path)
    (first, *others) = record.rounds
    up = dataclasses.replace(records.METRIC, direction=Direction.MAX)
    results = tuple(
        dataclasses.replace(r, comparisons=dataclasses.replace(r.comparisons, metric=up))
        for r in first.results
    )
    record = dataclasses.replace(
        record, rounds=(dataclasses.replace(first, results=results), *others)
    )
    compared = results[0].comparisons.arms[2]
    metrics = nodes_of(record)["r1-a1.3 weight_decay=0.1"].metrics
    assert metrics["val/loss.difference"] == pytest.approx(compared.mean_difference, rel=1e-3)


def test_the_test_split_shows_in_the_headline_alone(nodes: dict[str, Node]) -> None:
    shown = {n.name for n in nodes.values() if any(k.startswith("test/") for k in n.metrics)}
    assert "headline.2 final seed 030" in shown
    assert all(n.startswith(("headline", "campaign")) for n in shown)
    assert {n.with_test for n in nodes.values() if n.name.startswith("r1")} == {False}


def test_a_diverged_trial_is_a_result_and_a_failed_one_an_accident(
    nodes: dict[str, Node],
) -> None:
    diverged = nodes["r1-a1.4 weight_decay=1.0 seed 003"]
    assert (diverged.status, diverged.tags["ended"]) == ("FINISHED", "DIVERGED")
    assert diverged.tags["reason"] == "val/loss is nan from step 310"
    failed = nodes["r1-a2.2 dropout=0.5 seed 002"]
    assert failed.status == "FAILED"
    assert failed.trial is None, "an accident has no curves: it will be run again"


def test_times_are_those_of_the_trials(tmp_path: Path) -> None:
    record = records.finished(tmp_path)
    by_name = nodes_of(record)
    trial, outcome = record.of(records.WINNER, (2,))[0]
    node = by_name["r1-a1.3 weight_decay=0.1 seed 002"]
    assert node.trial == trial
    assert (node.start, node.end) == (outcome.started, outcome.started + outcome.seconds)
    top = by_name["campaign digits-overfitting"]
    started = [o.started for o in record.outcomes.values()]
    assert top.start == min(started)
    assert top.end is not None
    assert top.end > max(started)


def test_a_campaign_under_way_shows_what_there_is(tmp_path: Path) -> None:
    nodes = nodes_of(records.planned(tmp_path))
    assert nodes["campaign digits-overfitting"].status == "RUNNING"
    assert nodes["r1-a0 baseline"].status == "FINISHED"
    assert nodes["r1-a1 weight_decay"].status == "RUNNING"
    assert nodes["r1-a1.3 weight_decay=0.1"].metrics == {}
    assert "r1-a1.3 weight_decay=0.1 seed 001" in nodes


def test_an_unknown_start_is_left_open(tmp_path: Path) -> None:
    record = records.baseline_only(tmp_path)
    record = dataclasses.replace(
        record,
        outcomes={i: dataclasses.replace(o, started=0.0) for i, o in record.outcomes.items()},
    )
    assert {(n.start, n.end) for n in tree(record, {})} == {(None, None)}


def test_verdicts_are_spelled_as_in_the_table_of_the_page(tmp_path: Path) -> None:
    page = Page(
        "r1-weight_decay",
        "Round 1",
        "summary",
        "<html></html>",
        ("arm", "verdict"),
        (("baseline", "-"), ("weight_decay=0.1", "better (confirmed)")),
        {"forest.png": b"png"},
    )
    nodes = nodes_of(records.finished(tmp_path), {"r1-weight_decay": page})
    assert nodes["r1-a1.3 weight_decay=0.1"].tags["verdict"] == "better (confirmed)"
    ablation = nodes["r1-a1 weight_decay"]
    assert ablation.note == "summary"
    assert set(ablation.files) == {"forest.png", "r1-weight_decay.html"}


def test_every_page_of_a_report_is_shown_by_the_run_it_is_about(tmp_path: Path) -> None:
    record = records.finished(tmp_path)
    written = report.write(record, telemetry=lambda _: None)
    nodes = nodes_of(record, written.pages)
    shown = {n for n, node in nodes.items() if node.note}
    assert shown == {"campaign digits-overfitting", "r1-a1 weight_decay", "r1-a2 dropout"}
    assert nodes["r1-a1 weight_decay"].rows == written.pages["r1-weight_decay"].rows


def test_the_whole_config_of_an_arm_is_a_file(nodes: dict[str, Node]) -> None:
    config = json.loads(nodes["r1-a1.3 weight_decay=0.1"].files["config.json"])
    assert config["optimizer"] == {"lr": 1e-3, "weight_decay": 0.1}


@pytest.mark.parametrize("status", list(Status))
def test_every_ending_of_a_trial_has_a_status(status: Status, tmp_path: Path) -> None:
    record = records.baseline_only(tmp_path)
    record = dataclasses.replace(
        record,
        outcomes={i: dataclasses.replace(o, status=status) for i, o in record.outcomes.items()},
    )
    trials = [n for n in tree(record, {}) if n.kind == "trial"]
    assert {n.tags["ended"] for n in trials} == {status.value}
    assert {n.status for n in trials} <= {"FINISHED", "FAILED", "KILLED"}
