"""From a path to text, whatever it is encoded in. What is plainly no log is told apart here."""

from __future__ import annotations

import codecs
from functools import lru_cache
from pathlib import Path

from orchestrator.errors import OrchestratorError
from orchestrator.telemetry.readers.log import not_a_curve

HEAD = 1 << 16
"""Bytes a sniffer sees. The widest header among the real logs looked at has 9,000."""

LARGEST = 200 << 20
"""Bytes read at most: parsed rows take about 20 times their size in memory."""

_DEEPEST = 6
_MOST_ENTRIES = 20_000
"""How far a folder is searched: somebody may give their home."""

_MAGIC = (
    (b"version https://git-lfs", "is a Git LFS pointer, not the file itself", "git lfs pull"),
    (b"/annex/objects", "is a git-annex pointer, not the file itself", "git annex get"),
    (b"\x1f\x8b", "is compressed with gzip", "unpack it first"),
    (b"BZh", "is compressed with bzip2", "unpack it first"),
    (b"\xfd7zXZ", "is compressed with xz", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd", "unpack it first"),
    (b"PK\x03\x04", "is a zip archive (a checkpoint, a spreadsheet?)", "give the log inside it"),
    (b"SQLite format 3", "is an SQLite database", "give mlflow:RUN_ID for an MLflow run"),
    (b"\x89HDF", "is an HDF5 file", "export its history as CSV"),
    (b"PAR1", "is a Parquet file", "export it as CSV"),
    (b"\x93NUMPY", "is a NumPy array", "export it as CSV with a header"),
    (b"\x89PNG", "is a picture", "give the numbers it was drawn from"),
    (b"%PDF", "is a PDF document", "give the numbers behind it"),
    (b"\x80\x04", "is a pickle", "export it as CSV or JSON"),
    (b"<!DOCTYPE", "is a web page (a download that failed?)", "download the raw file"),
    (b"<html", "is a web page (a download that failed?)", "download the raw file"),
)

_ODD = frozenset(map(chr, range(32))) - frozenset("\t\n\r\x08\x0b\x0c\x1b") | {"\ufffd"}
"""Characters that text has none of."""


def head_of(path: Path) -> bytes:
    """The first bytes of a file; none of a folder."""
    if path.is_dir():
        return b""
    if not path.is_file():
        problem = f"{path}: no such file" if not path.exists() else f"{path}: not a regular file"
        raise OrchestratorError(problem, "give a log file or a folder that holds one")
    try:
        with path.open("rb") as file:
            return file.read(HEAD)
    except OSError as error:
        raise OrchestratorError(f"cannot read {path}: {error.strerror}") from None


def files_under(folder: Path) -> list[Path]:
    """Files at most `_DEEPEST` levels down, the nearest first, hidden folders left out."""
    found: list[Path] = []
    folders = [folder]
    for _ in range(_DEEPEST):
        entries = [entry for inner in folders for entry in _entries(inner)]
        found += [entry for entry in entries if entry.is_file()]
        folders = [e for e in entries if e.is_dir() and not e.name.startswith(".")]
        if len(found) + len(folders) > _MOST_ENTRIES:
            break
    return found


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise OrchestratorError(f"cannot read {folder}: {error.strerror}") from None


def refuse_foreign(head: bytes, path: Path) -> None:
    """Raise if the first bytes say that this is no log."""
    start = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if not start.strip(b"\0 \t\r\n"):
        raise not_a_curve(path, "is empty", "give a log with at least one line of numbers")
    for magic, seen, needed in _MAGIC:
        if start[: len(magic)].lower() == magic.lower():
            raise not_a_curve(path, seen, needed)


def read_text(path: Path) -> tuple[str, tuple[str, ...]]:
    """A file's text with line ends as "\\n" and without NUL, and what was wrong with it."""
    size = path.stat().st_size
    if size > LARGEST:
        raise OrchestratorError(
            f"{path} has {size >> 20} MB; {LARGEST >> 20} MB are read at most",
            "keep every 100th line, or the columns that matter",
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise OrchestratorError(f"cannot read {path}: {error.strerror}") from None
    text, warnings = decode(data)
    if _is_binary(text):
        raise not_a_curve(path, "holds binary data", "give a text log, CSV, JSON or event file")
    if "\0" in text:
        warnings += (f"{text.count(chr(0))} NUL bytes were skipped",)
        text = text.replace("\0", "")
    return text.replace("\r\n", "\n").replace("\r", "\n"), warnings


def decode(data: bytes) -> tuple[str, tuple[str, ...]]:
    """Text of `data` (by byte order mark, by where its NULs are, as UTF-8), and what was odd."""
    if data.startswith(codecs.BOM_UTF8):
        data = data[len(codecs.BOM_UTF8) :]
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace"), ("encoded in UTF-16",)
    if encoding := _bare_utf16(data[:4096]):
        note = f"encoded in {encoding} without a byte order mark"
        return data.decode(encoding, errors="replace"), (note,)
    try:
        return data.decode("utf-8"), ()
    except UnicodeDecodeError as error:
        if error.start >= len(data) - 3:  # a character cut in two by the end of the data
            return data[: error.start].decode("utf-8"), ()
        note = f"not valid UTF-8 from byte {error.start} on: read as Latin-1"
        return data.decode("latin-1"), (note,)


@lru_cache(maxsize=2)
def sniffed(head: bytes) -> str:
    """Text of a head, for the sniffers; "" if it is not text."""
    text, _ = decode(head)
    if _is_binary(text):
        return ""
    return text.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")


def _bare_utf16(sample: bytes) -> str:
    """Western text in UTF-16 has a NUL in nearly every second byte."""
    half = len(sample) // 2
    if half >= 4 and sample[1::2].count(0) > 0.8 * half and sample[::2].count(0) < 0.1 * half:
        return "utf-16-le"
    if half >= 4 and sample[::2].count(0) > 0.8 * half and sample[1::2].count(0) < 0.1 * half:
        return "utf-16-be"
    return ""


def _is_binary(text: str) -> bool:
    """Whether over 5 % are control characters; NUL aside, of which crashes leave whole blocks."""
    sample = text[:HEAD].replace("\0", "") or text[:1]
    return sum(map(sample.count, _ODD)) > 0.05 * len(sample)
