"""A table as LaTeX with booktabs, for a paper."""

from __future__ import annotations

import re

from orchestrator.report.blocks import Table

_SPECIAL = {
    "\\": r"\textbackslash{}",
    **{c: f"\\{c}" for c in "#$%&_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "→": r"$\rightarrow$",
    "\n": " ",
}
_MINUS = re.compile(r"(?<![\w.])-(?=\d)")


def latex(table: Table, *, label: str) -> str:
    """The table with its note as the caption; words to the left, numbers to the right."""
    words = {0, len(table.columns) - 1} if table.columns[-1] == "verdict" else {0}
    places = "".join("l" if i in words else "r" for i in range(len(table.columns)))
    rows = [" & ".join(map(escape, table.columns))]
    rows += [" & ".join([_first(row[0]), *map(_number, row[1:])]) for row in table.rows]
    header, *body = (f"{row} \\\\" for row in rows)
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            f"\\caption{{{escape(table.note)}}}",
            f"\\label{{{label}}}",
            f"\\begin{{tabular}}{{{places}}}",
            r"\toprule",
            header,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def escape(text: str) -> str:
    """Text that LaTeX prints as it stands."""
    return "".join(_SPECIAL.get(c, c) for c in text if c == "\n" or c.isprintable())


def _first(text: str) -> str:
    r"""The first cell of a row: `\\` would take a bracket or a star for its own argument."""
    return f"{{}}{escape(text)}" if text[:1] in ("[", "*") else escape(text)


def _number(text: str) -> str:
    return _MINUS.sub("$-$", escape(text))
