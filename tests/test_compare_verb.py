"""The verb compare as somebody types it, on tables; on MLflow runs: tests/track/test_scores.py."""

import io
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from orchestrator.cli import main

SCORES = {
    "base": [0.50, 0.52, 0.49, 0.51, 0.50],
    "wide_x&y": [0.61, 0.62, 0.58, 0.60, 0.63],
    "deep": [0.51, 0.50, 0.48, 0.50, None],
}
CSV = "arm,seed,value,status\n" + "".join(
    f"{arm},{seed},{'' if v is None else v},{'diverged' if v is None else ''}\n"
    for arm, values in SCORES.items()
    for seed, v in enumerate(values)
)
ASKED = ("--baseline", "base", "--direction", "max")


@pytest.fixture
def verb(tmp_path, monkeypatch, capsys):
    """Run `compare` in a folder with scores.csv; (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    Path("scores.csv").write_text(CSV)

    def run(*arguments):
        try:
            code = main(["compare", *arguments])
        except SystemExit as ended:
            code = ended.code
        return code, *capsys.readouterr()

    return run


def test_the_table_says_what_came_out_and_why(verb):
    code, out, err = verb("scores.csv", *ASKED)
    assert (code, err) == (0, "")
    assert re.search(r"base \(baseline\) +5 +0.504 ± 0.011", out)
    assert re.search(r"wide_x&y +5 .*\+0.104 \[\+0.084, \+0.124\].*better", out)
    assert "unstable" in out
    assert "Find out why those seeds diverge" in " ".join(out.split())


def test_the_json_is_the_contracts(verb):
    code, out, _ = verb("scores.csv", *ASKED, "--json", "--delta", "0.03", "--resolution", "0.001")
    told = json.loads(out)
    assert code == 0
    assert told["ranking"] == ["wide_x&y", "base", "deep"]
    assert [arm["verdict"] for arm in told["arms"]] == ["better", "unstable"]
    assert told["arms"][0]["seeds_needed"] is None
    assert told["arms"][0]["p_equivalent"] > 0.9


def test_the_level_and_the_looks_are_used(verb):
    _, half, _ = verb("scores.csv", *ASKED, "--json", "--alpha", "0.025")
    _, five, _ = verb("scores.csv", *ASKED, "--json")
    _, look, _ = verb("scores.csv", *ASKED, "--json", "--looks", "3,5,7,10")
    critical = [json.loads(out)["critical_value"] for out in (five, half, look)]
    assert critical == sorted(critical)
    code, _, err = verb("scores.csv", *ASKED, "--looks", "3,7")
    assert code == 2
    assert "5 seeds, which is none of looks=3,7" in err


def test_standard_input_is_a_table_too(verb, monkeypatch):
    class Piped:
        buffer = io.BytesIO(CSV.encode("utf-16"))

    monkeypatch.setattr(sys, "stdin", Piped)
    assert "better" in verb("-", *ASKED)[1]


def test_markdown_is_a_table_with_its_reasons(verb):
    _, out, _ = verb("scores.csv", *ASKED, "--markdown")
    assert (
        "| wide_x&y | 5 | 0.608 ± 0.019 | +0.104 [+0.084, +0.124] | p<0.001 | 0 | better |" in out
    )
    assert "- deep: unstable, " in out


def test_latex_is_booktabs_with_special_characters_escaped(verb):
    _, out, _ = verb("scores.csv", *ASKED, "--latex")
    rows = re.findall(r"^(.*) \\\\$", out, re.MULTILINE)
    assert [row.count(" & ") for row in rows] == [6] * 4
    assert r"wide\_x\&y & 5 & 0.608 $\pm$ 0.019" in out
    assert "[$-$0." in out
    assert out.count("{") == out.count("}")
    for part in ("toprule", "midrule", "bottomrule", "begin{tabular}{lrrrrrl}", "end{table}"):
        assert f"\\{part}\n" in out
    assert r"[90\%]" in out


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no TeX here: apt-get install texlive")
def test_latex_compiles(verb, tmp_path):
    _, out, _ = verb("scores.csv", *ASKED, "--latex")
    head = r"\documentclass{article}\usepackage{booktabs}\begin{document}"
    paper = f"{head}\n{out}\n\\end{{document}}"
    (tmp_path / "paper.tex").write_text(paper, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("form", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("PDF", b"%PDF")]
)
def test_the_forest_plot_is_a_file_of_the_kind_it_is_called(verb, tmp_path, form, start):
    code, out, _ = verb("scores.csv", *ASKED, "--plot", f"forest.{form}")
    assert code == 0
    assert "better" in out
    assert (tmp_path / f"forest.{form}").read_bytes().startswith(start)


def test_names_of_columns_can_be_given(verb, tmp_path):
    (tmp_path / "other.csv").write_text(CSV.replace("arm,seed,value,status", "model,rng,acc,end"))
    names = ("--arm", "model", "--seed", "rng", "--metric", "acc", "--status", "end")
    _, out, _ = verb("other.csv", *names, *ASKED)
    assert " acc " in out
    assert "unstable" in out
    code, _, err = verb("other.csv", *ASKED)
    assert code == 2
    assert "no column 'arm'\n  -> name it with --arm" in err


def test_notes_do_not_get_into_the_json(verb, tmp_path):
    (tmp_path / "wide.csv").write_text("seed,base,a\n0,1,2\n1,2,4\n2,3,6\n")
    code, out, err = verb("wide.csv", *ASKED, "--json")
    assert code == 0
    assert json.loads(out)["k"] == 1
    assert err == "note: columns taken for arms: base, a\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "compare needs one table or one experiment"),
        (("scores.csv", "--mlflow", "x"), "compare needs one table or one experiment"),
        (("none.csv", *ASKED), "cannot read none.csv: No such file"),
        ((".", *ASKED), "cannot read .: Is a directory"),
        (("scores.csv",), "which arm is the baseline?"),
        (("scores.csv", *ASKED, "--baseline", "deep"), "--baseline is given twice"),
        (("scores.csv", *ASKED, "--plot", "forest.gif"), "end it in .png, .svg, .pdf"),
        (("scores.csv", *ASKED, "--plot", "no/forest.png"), "cannot write no/forest.png"),
        (("scores.csv", *ASKED, "--filter", "x = 1"), "are for MLflow; scores.csv is a table"),
        (("scores.csv", *ASKED, "--json", "--latex"), "not allowed with argument --json"),
        (("scores.csv", *ASKED, "--looks", "a"), "invalid _looks value"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_exit_code_2(verb, arguments, told):
    code, out, err = verb(*arguments)
    assert (code, out) == (2, "")
    assert told in err


def test_several_mistakes_are_told_at_once(verb, tmp_path):
    (tmp_path / "bad.csv").write_text(CSV + "base,0,0.5,\ndeep,9,nan,\n")
    code, _, err = verb("bad.csv", "--baseline", "bsae", "--direction", "mx", "--alpha", "0.5",
                        "--delta", "0")  # fmt: skip
    assert code == 2
    assert err.startswith("6 mistakes:")


def test_the_help_has_examples_and_every_option(verb):
    code, out, _ = verb("--help")
    assert code == 0
    for word in ("--plot FILE", "--latex", "--delta", "mlflow:EXPERIMENT", "compare scores.csv"):
        assert word in out


def test_a_thousand_arms_take_seconds_not_minutes(verb, tmp_path):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(1001, 100)).tolist()
    lines = [f"arm{a},{s},{v}" for a, row in enumerate(values) for s, v in enumerate(row)]
    (tmp_path / "many.csv").write_text("\n".join(["arm,seed,value", *lines]))
    began = time.process_time()
    _, out, _ = verb("many.csv", "--baseline", "arm0", "--direction", "max", "--json")
    assert time.process_time() - began < 6  # 1.2 s when quiet (scripts/bench compare)
    assert json.loads(out)["nu"] == 1000 * 99
