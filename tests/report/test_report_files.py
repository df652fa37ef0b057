from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from orchestrator import report
from orchestrator.nouns import Record
from orchestrator.report.files import Report
from tests import records


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, Report]:
    record = records.finished(tmp_path_factory.mktemp("campaign"))
    return record, report.write(record, telemetry=records.telemetry)


def test_the_report_lies_with_the_campaign_a_page_per_ablation(
    written: tuple[Record, Report],
) -> None:
    record, made = written
    assert made.folder == Path(record.campaign.folder) / "report"
    assert {p.name for p in made.folder.iterdir()} == {
        "report.md", "report.html", "r1-weight_decay.md", "r1-weight_decay.html",
        "r1-dropout.md", "r1-dropout.html", "figures",
    }  # fmt: skip
    assert {p.name for p in (made.folder / "figures").iterdir()} == {
        "estimates.png", "r1-weight_decay-forest.png", "r1-weight_decay-curves.png",
        "r1-dropout-forest.png", "r1-dropout-curves.png",
    }  # fmt: skip


def test_the_answer_comes_first(written: tuple[Record, Report]) -> None:
    _, made = written
    title, answer = made.markdown.read_text().split("\n\n")[:2]
    assert title == "# digits-overfitting"
    assert answer.startswith("**optimizer.weight_decay=0.1 beats the original configuration: ")
    assert re.search(r"val/loss -0\.\d+ nat \[-0\.\d+, -0\.\d+\] \(90% interval, 6 common", answer)


@pytest.mark.parametrize(
    "said",
    [
        "validation loss rises from step 240",  # what was seen
        "Could be mistaken for: validation set too small (SE 0.02)",  # its look-alikes
        "`generalisation_gap` falls",  # what the hypothesis predicts for the mechanism
        "early stopping is not among the declared factors",  # what could not be tested
        "Hypothesis supported",  # what came out of both
        "candidate (unconfirmed)",  # a winner without fresh seeds
        "| weight_decay=1.0 | 4 | ",  # negative results are kept
        "Screening estimates are optimistic",
        "On the test split, read once",
        "Seeds 30-35 were used for nothing else",
        "DataLoader worker exited unexpectedly",
        "Clopper-Pearson",
        "H = 4 ablations",
        "Time per trial: 4.2 s against 4.0 s (+5%)",
        "No finding: no rule fired on the baseline.",  # round 2
    ],
)
def test_the_campaign_page_says(said: str, written: tuple[Record, Report]) -> None:
    assert said in written[1].markdown.read_text()


@pytest.mark.parametrize(
    "said",
    [
        "Exact sign-flip test, the second opinion: p=0.031",
        "Hedges g",
        "Worst seed: ",
        "Diverged on 1 of 5 seeds, on 1 of them alone",
        "Judged by its own variance",
        "Flag fragile: the exact sign-flip test does not agree",
        "## Mechanism",
        "| weight_decay=1.0 | 3 | - | DIVERGED: val/loss is nan from step 310 |",
        "**weight_decay=0.1**: optimizer.weight_decay: 0 → 0.1",
    ],
)
def test_the_page_of_an_ablation_says(said: str, written: tuple[Record, Report]) -> None:
    assert said in (written[1].folder / "r1-weight_decay.md").read_text()


def test_html_stands_alone(written: tuple[Record, Report]) -> None:
    for page in written[1].folder.glob("*.html"):
        text = page.read_text()
        assert "<script" not in text
        assert not re.search(r'(?:src|href)="(?!data:image/png;base64,|[\w.=-]+\.html")', text)
        assert "http://" not in text
        assert "https://" not in text
    text = written[1].html.read_text()
    assert "prefers-color-scheme: dark" in text
    assert text.count("data:image/png;base64,") == 1


def test_every_link_and_picture_of_the_markdown_exists(written: tuple[Record, Report]) -> None:
    folder = written[1].folder
    for page in folder.glob("*.md"):
        targets = re.findall(r"\]\(([^)]+)\)", page.read_text())
        assert targets
        for target in targets:
            assert (folder / target).exists(), target


def test_pages_hold_the_table_the_summary_and_the_figures(
    written: tuple[Record, Report],
) -> None:
    pages = written[1].pages
    assert set(pages) == {"", "r1-weight_decay", "r1-dropout"}
    page = pages["r1-weight_decay"]
    assert page.columns[0] == "arm"
    assert page.rows[1][-1] == "better (confirmed)"
    assert page.summary.startswith("**Hypothesis supported")
    assert "| weight_decay=0.1 |" in page.summary
    assert set(page.figures) == {"r1-weight_decay-forest.png", "r1-weight_decay-curves.png"}


def test_writing_again_leaves_the_same_bytes_and_nothing_aside(
    written: tuple[Record, Report],
) -> None:
    record, made = written
    files = {p: p.read_bytes() for p in made.folder.rglob("*") if p.is_file()}
    report.write(record, telemetry=records.telemetry)
    assert {p: p.read_bytes() for p in made.folder.rglob("*") if p.is_file()} == files


def test_a_factor_tested_again_in_another_round_gets_a_page_of_its_own(tmp_path: Path) -> None:
    record = records.finished(tmp_path)
    first, second = record.rounds
    assert first.plan is not None
    again = dataclasses.replace(second, plan=dataclasses.replace(first.plan, round=2))
    made = report.write(dataclasses.replace(record, rounds=(first, again)), lambda _: None)
    assert {"r1-weight_decay", "r2-weight_decay"} < set(made.pages)
    assert "Not finished" in made.pages["r2-weight_decay"].summary
    assert made.pages["r1-weight_decay"].rows


def test_names_from_the_user_are_escaped(tmp_path: Path) -> None:
    record = records.healthy(tmp_path)
    campaign = dataclasses.replace(record.campaign, name="<b>a|b</b> & co")
    made = report.write(dataclasses.replace(record, campaign=campaign), records.telemetry)
    assert "<h1>&lt;b&gt;a|b&lt;/b&gt; &amp; co</h1>" in made.html.read_text()


@pytest.mark.parametrize(
    ("maker", "said"),
    [
        (records.baseline_only, "The baseline is still running."),
        (records.planned, "Not finished: 20 trials planned."),
        (records.healthy, "Nothing was adopted: the original configuration stays."),
    ],
)
def test_a_campaign_under_way_or_without_a_finding_has_a_report(
    maker, said: str, tmp_path: Path
) -> None:
    made = report.write(maker(tmp_path), telemetry=lambda _: None)
    assert said in made.markdown.read_text()
