import codecs

import pytest

TABLE = "epoch,train_loss,val_loss\n" + "".join(f"{e},{3 / e},{4 / e}\n" for e in range(1, 6))
STATE = (
    '{"log_history": [' + ", ".join(f'{{"loss": {9 - i}, "step": {i}}}' for i in range(1, 6)) + "]}"
)
LINES = "".join(f'{{"step": {i}, "loss": {9 - i}}}\n' for i in range(1, 6))
TEXT = "".join(f"step {i}: loss {9 - i}\n" for i in range(1, 6))
KINDS = [("x.csv", TABLE), ("trainer_state.json", STATE), ("x.jsonl", LINES), ("x.log", TEXT)]


@pytest.mark.parametrize(("name", "text"), KINDS)
@pytest.mark.parametrize(
    "encode",
    [
        lambda text: codecs.BOM_UTF8 + text.encode(),
        lambda text: codecs.BOM_UTF8 + b"\r\n" + text.encode(),
        lambda text: text.encode("utf-16"),
        lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
        lambda text: text.encode("utf-16-le"),
        lambda text: text.encode("utf-16-be"),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.replace("\n", "\r").encode(),
        lambda text: text.replace("\n", "\r\r\n").encode(),
        lambda text: text.replace("\n", "\n\0\0").encode(),
        lambda text: text.encode() + bytes(1000),
    ],
)
def test_every_encoding_says_the_same(read, name, text, encode):
    expected = read(name, text)
    log = read(name, encode(text))
    assert log.format == expected.format
    assert log.columns == expected.columns
    for role, series in expected.telemetry.series.items():
        assert log.telemetry[role].values.tolist() == series.values.tolist()


def test_latin_letters_that_are_not_utf8(read):
    log = read("x.csv", "époque,train_loss\n1,3\n2,2\n".encode("latin-1"))
    assert "read as Latin-1" in log.warnings[0]


def test_nul_bytes_are_counted(read):
    assert "2 NUL bytes were skipped" in read("x.csv", TABLE + "\0\0").warnings


def test_one_line_of_a_megabyte(read):
    log = read("x.log", TEXT + "loss " + "word " * 200_000 + "\n")
    assert len(log.telemetry["train/loss"]) == 5
