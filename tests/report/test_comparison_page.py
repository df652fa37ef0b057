"""A comparison as LaTeX, Markdown and forest plot, with names that each of them might misread."""

import re

import pytest

from orchestrator import compare
from orchestrator.report import comparison_page
from orchestrator.report.blocks import Table
from orchestrator.report.latex import latex

ODD = (r"$\frac{$", "x_1 & 50 %", "[first]", "*star", "β→\\ω", "two\nlines", "a|b", "~^{}#<>")


@pytest.fixture(scope="module")
def found():
    """Arms with odd names, each better than the one before."""
    base = {0: 0.50, 1: 0.52, 2: 0.49}
    arms = {
        name: {s: v + 0.01 * i * (1 + s) for s, v in base.items()} for i, name in enumerate(ODD)
    }
    return compare({"base": base, **arms}, baseline="base", direction="max")


def test_every_name_is_text_in_latex(found):
    rows = {row.split(" & ")[0] for row in found.latex().splitlines() if row.endswith(r"\\")}
    special = r"\textasciitilde{}\textasciicircum{}\{\}\#$<$$>$"
    for shown in (r"\$\textbackslash{}frac\{\$", "{}[first]", "{}*star", "two lines",
                  r"β$\rightarrow$\textbackslash{}ω", r"a\textbar{}b", special):  # fmt: skip
        assert shown in rows
    assert r"x\_1 \& 50 \% &" in found.latex()


def test_every_command_that_latex_needs_is_closed(found):
    text = found.latex()
    opened = re.findall(r"\\begin{(\w+)}", text)
    assert re.findall(r"\\end{(\w+)}", text) == opened[::-1] == ["tabular", "table"]
    bare = re.sub(r"\\[{}$]", "", text)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0


def test_minus_signs_are_set_as_such_but_not_in_names():
    table = Table(("arm", "gain"), (("lr=1e-3", "-0.5 [-0.9, +0.1]"),), "n = 3.")
    assert "lr=1e-3 & $-$0.5 [$-$0.9, +0.1] \\\\" in latex(table, label="tab:x")


def test_a_name_breaks_no_markdown_table(found):
    lines = found.markdown().splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == len(ODD) + 3
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {7}
    assert r"| a\|b |" in found.markdown()


def test_the_forest_plot_shows_names_as_they_are(found, tmp_path):
    drawn = found.forest(tmp_path / "f.svg").read_text(encoding="utf-8")
    assert "<!-- x_1 &amp; 50 % -->" in drawn
    assert r"<!-- $\frac{$ -->" in drawn, "as mathematics it would not even parse"


def test_a_forest_plot_of_many_arms_stops_where_it_cannot_be_read(tmp_path, monkeypatch):
    base = {0: 0.50, 1: 0.52, 2: 0.49}
    arms = {f"arm{i}": {s: v + 0.01 * i for s, v in base.items()} for i in range(9)}
    found = compare({"base": base, **arms}, baseline="base", direction="min")
    monkeypatch.setattr(comparison_page, "MOST_ROWS", 4)
    drawn = found.forest(tmp_path / "f.svg").read_text(encoding="utf-8")
    assert "best 4 of 9 arms" in drawn
    assert "<!-- arm0 -->" in drawn
    assert "<!-- arm4 -->" not in drawn
