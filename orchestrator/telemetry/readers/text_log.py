"""Text that a training printed: lines with a position and `name value` pairs, amid other lines."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from orchestrator.nouns import Scalar
from orchestrator.telemetry.readers import naming
from orchestrator.telemetry.readers.cells import cell
from orchestrator.telemetry.readers.log import Raw, Record, not_a_curve
from orchestrator.telemetry.readers.registry import reader
from orchestrator.telemetry.readers.source import read_text, sniffed

_LONGEST = 5000
"""Characters of a line that are looked at."""

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?)\b"
_ENDED = r"(?![\w:/]|\.\d|-\d)"  # no time, date, version, fraction, no unit but "%"
_OF = r"(?:\s*(?:/|of)\s*(\d+))?"
_WORD = r"[^\W\d_][\w@%./-]{0,60}+"  # possessive: no line takes more than linear time

_NAMES = 4096
"""Names whose meaning is remembered: the same few come on every line."""

_HINT = re.compile(
    r"loss|acc|epoch|step|iter|l1|l2|err|norm|ppl|perplex|dice|iou|map|f1|auc|score|^s:\d", re.I
)
_EPOCH = re.compile(
    r"(?<![\w/.])epoch\b['\"]?(?:\s?\(\w+\))?[\s:=#\[(|]{0,4}?(\d+(?:\.\d+)?)(?!\.?\d)"
    + _OF
    + r"[\])]?"
    r"(?:[\s:,|]{0,4}[\[(]?\s*(\d+)\s*/\s*(\d+))?",
    re.I,
)
"""`Epoch 1/10`, `epoch: 3`, `Epoch [1][50/1000]`, `Train Epoch: 1 [640/60000 (1%)]`."""

_STEP = re.compile(
    r"(?:(?<![\w/.])(?:global[_ ]?step|num_updates|step|iteration|iter|it|batch)\b['\"]?|^s)"
    r"[\s:=#\[(]{0,8}(\d+)(?![\d.]*\s?(?:s|ms|it)/|\.\d)" + _OF,
    re.I,
)
"""`step:250/5100`, `iter 250:`, `Step     1, Loss`, `iteration 100/ 5000 |`, llm.c's `s:0`."""

_PROGRESS = re.compile(r"(?<![\w./])(\d+)/(\d+)\s*[\[━]")
"""Progress bars of tqdm (`45/100 [00:10<`) and Keras (`100/100 [===`)."""

_COUNTED = re.compile(r"\W{0,3}[\[(]?\s*(\d+)(?:\s*/\s*\d+\s*[\]):|]|\])")
"""`[012/100] train_loss=...`, `[12] loss ...`, at the beginning of a line."""

_PAIR = re.compile(
    rf"(?<![\w.])['\"]?({_WORD}(?:[ ]\(?{_WORD}\)?){{0,3}}+)['\"]?"
    rf"\s{{0,3}}[:=]\s{{0,8}}(?:tensor\()?({_NUMBER}){_ENDED}",
    re.I,
)
_SPOKEN = re.compile(
    r"(?<![\w./])((?:(?:train(?:ing)?|val(?:id(?:ation)?)?|test|eval)[ _/-]?)?"
    r"(?:(?:[a-z]{1,20}_){0,3}loss|acc(?:uracy)?|(?:acc|prec|top)@?[15]|lr|learning rate|"
    r"norm|grad[ _]norm|gnorm|ppl|perplexity|loss[ _]scale))\b"
    rf"\s{{1,8}}({_NUMBER}){_ENDED}",
    re.I,
)
"""Pairs without a colon, of known names: `loss 2.4`, `val loss 2.5`, `Acc@1 0.39`."""

_FRACTION = re.compile(r"(acc(?:uracy)?)\s?[:=]?\s?\d+/\d+\s?\(([\d.]+)%\)", re.I)
_PHASE = re.compile(
    r"(?<!\w)(?:train(?:ing)?|val(?:id(?:ation)?)?|eval(?:uation)?|test)(?![\w.])", re.I
)
_LEVEL = re.compile(r"^(?:INFO|DEBUG|WARN(?:ING)?|NOTICE)\s+")
_USELESS = re.compile(
    r"(?:(?:best|lowest|highest|eta)(?![a-z])|v_num$|cuda$|s$)|.*\.(?:py|c|cpp|cc|cu|h)$", re.I
)
"""Names of best values so far, of versions, devices and source files; and llm.c's step."""


def _sniff(head: bytes, _: Path) -> float:
    return 0.2 if sniffed(head) else 0.0


@reader("text_log", sniff=_sniff)
def read(path: Path) -> Raw:
    """The lines that tell a loss or a metric; one without a position is where the last one was."""
    text, warnings = read_text(path)
    scan = _Scan()
    for line in text.split("\n"):
        scan.line(line[:_LONGEST])
    if not scan.records:
        seen = "has no line that tells a step and a loss, and no rows of numbers under a header"
        raise not_a_curve(path, seen, "give the output of a training, or its CSV or JSON log")
    return Raw({"": scan.records}, warnings, scan.facts, is_table=False)


@dataclass(slots=True)
class _Scan:
    """Reads line by line; remembers the epoch for the lines that follow its announcement."""

    records: list[Record] = field(default_factory=list)
    facts: dict[str, Scalar] = field(default_factory=dict)
    epoch: float | None = None

    def line(self, line: str) -> None:
        """Take one line."""
        if not _HINT.search(line):
            return
        position = self._position(line)
        pairs = _pairs(line)
        if not position:
            has_begun = bool(self.records) or self.epoch is not None
            pairs = {n: value for n, value in pairs.items() if has_begun and _is_certain(n)}
        if not pairs:
            return
        if self.epoch is not None:
            position.setdefault("epoch", self.epoch)
        self.records.append({**pairs, **position})

    def _position(self, line: str) -> Record:
        position: Record = {}
        if match := _EPOCH.search(line):
            position["epoch"] = float(match[1])
            self.epoch = float(match[1])
            if match[2]:
                self.facts["max_epochs"] = int(match[2][:9])
            if match[3]:
                position["step"] = float(match[3])
        step = _STEP.search(line)
        if step:
            position["step"] = float(step[1])
            if step[2] and "epoch" not in position:
                self.facts["max_steps"] = int(step[2][:9])
        elif "step" not in position and (bar := _PROGRESS.search(line) or _COUNTED.match(line)):
            position["step"] = float(bar[1])
        return position


def _pairs(line: str) -> Record:
    """Names and values on a line, without its position.

    A name without a split has that of the name before it, the first one that of the line.
    """
    found: dict[str, tuple[int, float]] = {}
    for pattern in (_FRACTION, _PAIR, _SPOKEN):
        for match in pattern.finditer(line):
            name = _LEVEL.sub("", match[1].strip())
            value = cell(match[2])
            if name not in found and isinstance(value, float) and _is_quantity(name):
                found[name] = (match.start(), value)
    if not found:
        return {}
    ordered = sorted(found.items(), key=lambda pair: pair[1][0])
    split = _split_of_line(line[: ordered[0][1][0]])
    pairs: Record = {}
    for name, (_, value) in ordered:
        own, is_ours = _own_split(name)
        split = own or split
        pairs[name if own or is_ours or not split else f"{split} {name}"] = value
    return pairs


def _split_of_line(before: str) -> str:
    """Word for validation or test that precedes the pairs; "*" is how torchvision marks it."""
    marks = list(_PHASE.finditer(before))
    if not marks:
        return "val" if before.strip() == "*" else ""
    word = marks[-1][0]
    return "" if naming.split_of(word) == "train" else word


@lru_cache(maxsize=_NAMES)
def _is_quantity(name: str) -> bool:
    """Whether a name is neither a position, nor a bare "Eval:", nor a best value so far."""
    if naming.split_of(name) or _USELESS.match(name):
        return False
    axes = (naming.STEP_NAMES, naming.EPOCH_NAMES)
    return not any(naming.rank_in(name, table) is not None for table in axes)


@lru_cache(maxsize=_NAMES)
def _own_split(name: str) -> tuple[str, bool]:
    """The split in a name, and whether it is of the training itself, which has no split."""
    known = naming.quantity(name)
    is_ours = known is not None and known[0] in ("grad_norm", "loss_scale")
    return naming.take_apart(name)[0], is_ours or naming.lr_group(name) is not None


@lru_cache(maxsize=_NAMES)
def _is_certain(name: str) -> bool:
    """Whether a pair counts on a line without a position, where settings are printed, too."""
    split, rest = naming.take_apart(name)
    known = naming.quantity(rest)
    if known and known[0] in ("loss", "accuracy"):
        return True
    return bool(split) and not name.isupper() and naming.direction_of(rest) is not None
