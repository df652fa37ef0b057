from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest

from orchestrator import report
from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Status, Trial
from tests import records


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def trials(folder: Path) -> list:
    record = records.finished(folder)
    return [(t, record.outcomes[i]) for i, t in record.trials.items() if t.seed < 10]


def test_without_a_terminal_there_are_plain_lines_and_few_of_them(tmp_path: Path) -> None:
    out, clock = io.StringIO(), Clock()
    pairs = trials(tmp_path)
    with report.Display(out, clock=clock) as display:
        display.trials("7 arms x 5 seeds", len(pairs))
        for trial, outcome in pairs:
            clock.now += 1.0
            display.finished(trial, outcome)
    text = out.getvalue()
    assert "\x1b" not in text
    assert "\r" not in text
    lines = text.splitlines()
    assert lines[0] == "7 arms x 5 seeds: 35 trials"
    assert "7 arms x 5 seeds: 10 of 35 (about 25 s left)" in lines
    assert "weight_decay=1.0, seed 3: DIVERGED: val/loss is nan from step 310" in lines
    assert lines[-1] == "7 arms x 5 seeds: 35 of 35 (1 DIVERGED, 1 FAILED)"
    assert len(lines) < 8


def test_on_a_terminal_one_line_redraws_itself_and_the_cursor_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    out = Terminal()
    with report.Display(out) as display:
        display.trials("baseline x 5 seeds", 5)
        for trial, outcome in trials(tmp_path)[:3]:
            display.finished(trial, outcome)
    text = out.getvalue()
    assert "3/5" in text
    assert text.rstrip().endswith("\x1b[?25h") or text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")


def test_a_whole_campaign_is_told_in_order(tmp_path: Path) -> None:
    record, out = records.finished(tmp_path), io.StringIO()
    turn = record.rounds[0]
    assert turn.plan is not None
    assert turn.confirmation is not None
    assert record.headline is not None
    with report.Display(out) as display:
        display.stage("Round 1")
        display.findings(turn)
        display.plan(turn.plan, "Trials of this round: 30 screening.")
        for result, ablation in zip(turn.results, turn.plan.ablations, strict=True):
            display.result(result, ablation)
        display.confirmation(turn.confirmation)
        display.headline(record.headline)
        display.warning("MLflow does not answer")
        display.ending("no finding is left in round 2")
        display.published(tmp_path / "report.html", "http://127.0.0.1/#/x?a=b&c=d")
    text = out.getvalue()
    parts = [
        "Round 1",
        "overfitting: validation loss rises",
        "Hypothesis: more weight decay lowers val/loss",
        "early stopping is not among the declared factors",
        "Plan of round 1",
        "optimizer.weight_decay: 0 → 0.001",
        "5 seeds detect a difference of 0.07 nat",
        "30 screening",
        "weight_decay (optimizer.weight_decay)",
        "candidate (unconfirmed)",
        "Hypothesis supported",
        "Confirmation on fresh seeds",
        "confirmed and adopted",
        "beats the original configuration",
        "warning: MLflow does not answer",
        "The loop stopped: no finding is left in round 2.",
        f"report: {tmp_path}/report.html",
        "MLflow: http://127.0.0.1/#/x?a=b&c=d",
    ]
    places = [text.find(part) for part in parts]
    assert -1 not in places, parts[places.index(-1)]
    assert places == sorted(places)


def test_a_round_without_a_finding_says_so(tmp_path: Path) -> None:
    out = io.StringIO()
    report.Display(out).findings(records.healthy(tmp_path).rounds[0])
    assert "No finding" in out.getvalue()


def test_text_of_the_user_is_not_markup(tmp_path: Path) -> None:
    out = io.StringIO()
    record = records.planned(tmp_path)
    trial = next(iter(record.trials.values()))
    odd = Trial(trial.identity, "[red]a[/red]", 0, (), trial.config, trial.folder)
    display = report.Display(out)
    display.trials("[bold]x", 2)
    display.finished(odd, records.trial(records.DROPOUT_ARMS[1], 2, tmp_path, 0.0)[1])
    assert "[red]a[/red], seed 0: FAILED" in out.getvalue()
    assert "[bold]x" in out.getvalue()


def test_a_stream_that_is_not_utf8_gets_ascii(tmp_path: Path) -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    record = records.finished(tmp_path)
    turn = record.rounds[0]
    assert turn.plan is not None
    report.Display(out).result(turn.results[0], turn.plan.ablations[0])
    out.flush()
    assert b"0.438 +/- 0.026" in raw.getvalue()


def test_a_trial_that_is_tried_again_counts_once(tmp_path: Path) -> None:
    out, (trial, failed) = io.StringIO(), records.trial(records.DROPOUT_ARMS[1], 2, tmp_path, 0.0)
    display = report.Display(out)
    display.trials("x", 1)
    display.finished(trial, failed)
    display.finished(trial, dataclasses.replace(failed, status=Status.DONE, reason=""))
    assert out.getvalue().splitlines()[-2:] == ["x: 1 of 1 (1 FAILED)", "x: 1 of 1"]


def shown(document) -> str:
    from orchestrator.report.console import console, show

    out = io.StringIO()
    show(document, console(out))
    return " ".join(out.getvalue().split())  # however it was wrapped


def test_status_says_where_a_campaign_stands(tmp_path: Path) -> None:
    assert "Now: baseline of round 1, 2 of 5 seeds." in shown(
        report.status(records.baseline_only(tmp_path))
    )
    planned = shown(report.status(records.planned(tmp_path)))
    assert "Now: round 1, 0 of 2 ablations judged." in planned
    assert "weight_decay: not judged yet" in planned
    finished = shown(report.status(records.finished(tmp_path)))
    assert "62 DONE, 1 DIVERGED, 1 FAILED; 0 launched and not ended; budget 120" in finished
    assert "weight_decay=0.1 better (confirmed)" in finished


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("weight_decay=1.0", ["Seed 3: DIVERGED", "Screening level 0.25", "Seeds 0-4", "Next: "]),
        ("dropout=0.2", ["Round 1: dropout", "Effect sizes"]),
        ("dropout", ["dropout=0.2", "dropout=0.5", "From screening alone"]),
        ("overfitting", ["Could be mistaken for", "weight_decay=0.1", "dropout=0.5"]),
        ("headline", ["On the test split, read once", "beats the original"]),
    ],
)
def test_explain_tells_every_number_behind_a_verdict(
    name: str, said: list[str], tmp_path: Path
) -> None:
    text = shown(report.explain(records.finished(tmp_path), name))
    for part in said:
        assert part in text


def test_explaining_one_arm_leaves_the_others_to_the_table(tmp_path: Path) -> None:
    text = shown(report.explain(records.finished(tmp_path), "weight_decay=0.1"))
    assert "Effect sizes" in text
    assert text.count("Effect sizes") == 1


def test_an_unknown_name_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(OrchestratorError, match="did you mean 'weight_decay"):
        report.explain(records.finished(tmp_path), "weight_deacy")


def test_what_is_not_judged_yet_says_how_far_it_is(tmp_path: Path) -> None:
    text = shown(report.explain(records.planned(tmp_path), "weight_decay"))
    assert "Not judged yet: 2 of 20 trials have ended." in text


def test_the_verbs_print(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report.show_status(records.finished(tmp_path))
    report.show_explanation(records.finished(tmp_path), "headline")
    assert "beats the original configuration" in capsys.readouterr().out
