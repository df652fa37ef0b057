"""One written number, however it was written."""

from __future__ import annotations

import math
import re

from orchestrator.telemetry.readers.log import Cell

MISSING = frozenset(
    {"", "-", "--", "—", "none", "null", "na", "n/a", "<na>", "nil", "undefined", "?"}
)
"""Words for "no value here", in lower case. "nan" is not among them: it may be a value."""

_WORDS = {
    "nan": math.nan,
    "-nan": math.nan,
    "+nan": math.nan,
    "nan(ind)": math.nan,
    "-nan(ind)": math.nan,
    "1.#qnan": math.nan,
    "1.#ind": math.nan,
    "-1.#ind": math.nan,
    "1.#inf": math.inf,
    "-1.#inf": -math.inf,
}
_WRAPPED = re.compile(
    r"(?:(?:torch\.)?tensor|array|np\.float\d+)?[(\[]+([^,()\[\]]+)\]*(?:,[^()]*)?\)?"
)
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+(?:[eE][-+]?\d+)?")


def cell(text: str, *, decimal_comma: bool = False) -> Cell | None:
    """The number that `text` writes, the text itself if it is none, None where the cell is empty.

    Reads `nan`, `inf` and C's spellings of them, `45.3%` (as 45.3), `tensor(0.5)`, `[0.5]`.
    """
    text = text.strip()
    try:
        return float(text)
    except ValueError:
        pass
    word = text.lower()
    if word in MISSING:
        return None
    if word in _WORDS:
        return _WORDS[word]
    if decimal_comma and _DECIMAL_COMMA.fullmatch(text):
        return float(text.replace(",", "."))
    if not decimal_comma and _THOUSANDS.fullmatch(text):
        return float(text.replace(",", ""))
    bare = ""
    if text.endswith("%"):
        bare = text[:-1].strip()
    elif len(text) < 200 and (match := _WRAPPED.fullmatch(text)):
        bare = match[1].strip()
    if decimal_comma and _DECIMAL_COMMA.fullmatch(bare):
        bare = bare.replace(",", ".")
    try:
        return float(bare)
    except ValueError:
        return text


def is_number(text: str) -> bool:
    """Whether a written cell is a number or NaN, whichever way decimals are written."""
    return isinstance(cell(text), float) or isinstance(cell(text, decimal_comma=True), float)
