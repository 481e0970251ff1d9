"""Tables, numbers and colour."""

from __future__ import annotations

import io

import pytest

from penstock.cli import output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_table_is_aligned_and_has_no_trailing_space() -> None:
    lines = output.format_table(
        {"TOPIC": "<", "PARTITIONS": ">", "ID": "<"}, [("orders", 6, "x"), ("a", None, None)]
    )
    assert lines == ["TOPIC   PARTITIONS  ID", "orders           6  x", "a                -  -"]


def test_empty_table_is_its_heading() -> None:
    assert output.format_table({"TOPIC": "<"}, []) == ["TOPIC"]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1549, "1.5 kB"),
        (9949, "9.9 kB"),
        (9950, "10 kB"),
        (112_400, "112 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (10**19, "10000 PB"),
    ],
)
def test_bytes(size: int, text: str) -> None:
    assert output.format_bytes(size) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 records"), (1, "1 record"), (1000, "1,000 records")]
)
def test_count(count: int, text: str) -> None:
    assert output.format_count(count, "record") == text


@pytest.mark.parametrize(
    ("environment", "terminal", "file"),
    [
        ({}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
    ],
)
def test_colour(
    environment: dict[str, str], terminal: bool, file: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert output.has_colour(Terminal()) is terminal
    assert output.has_colour(io.StringIO()) is file
    assert output.styled("text", "1", Terminal()) == ("\x1b[1mtext\x1b[0m" if terminal else "text")


def test_messages_are_not_data(capsys: pytest.CaptureFixture[str]) -> None:
    output.message("working")
    output.error("broken")
    output.warning("odd")
    output.emit("data")
    printed = capsys.readouterr()
    assert printed.out == "data\n"
    assert printed.err == "working\nerror: broken\nwarning: odd\n"


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 s"),
        (999, "0 s"),
        (59_999, "59 s"),
        (60_000, "1 m"),
        (200_000, "3 m 20 s"),
        (3_605_000, "1 h"),
        (601_200_000, "6 d 23 h"),
    ],
)
def test_durations(ms: int, text: str) -> None:
    assert output.format_duration(ms) == text
