"""What a command prints: data on standard output, messages on standard error.

Standard output may be a pipe that its reader closes early (`| head`); that ends the command
quietly. Colour is for terminals, judged per stream, and follows NO_COLOR, FORCE_COLOR and TERM.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TextIO

from penstock.errors import PenstockError

_BOLD: Final = "1"
_RED: Final = "31"
_GAP: Final = "  "
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


class OutputClosedError(Exception):
    """Nobody reads our standard output any longer."""


def emit(text: str) -> None:
    """Print data and a line end.

    Raises:
        OutputClosedError: the reader has gone.
        PenstockError: the output cannot be written for another reason.
    """
    with _writing():
        print(text)


def emit_bytes(data: bytes) -> None:
    """Write data as it is, now.

    Raises:
        OutputClosedError: the reader has gone.
        PenstockError: the output cannot be written for another reason.
    """
    left = memoryview(data)
    with _writing():
        while left:
            # With PYTHONUNBUFFERED this is the bare file, which may take only a part.
            left = left[sys.stdout.buffer.write(left) :]
        sys.stdout.buffer.flush()


def tell(line: str) -> None:
    """Print a line now, for whoever reads it: it goes on without them, and on a full disk."""
    try:
        print(line, flush=True)
    except OSError:
        abandon()


def flush() -> None:
    """Write what is still buffered.

    Raises:
        OutputClosedError: the reader has gone.
        PenstockError: the output cannot be written for another reason.
    """
    with _writing():
        sys.stdout.flush()


def abandon() -> None:
    """Give up standard output: Python would flush it again at exit, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_closed_streams() -> None:
    """Put nothing in the place of what was closed before the start (`>&-`).

    Or the next file or connection that is opened would get its number, and be written to as if it were
    the terminal.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The system gives the lowest number that is free, which is this one's.
            stream = open(os.devnull, mode)  # noqa: SIM115, PTH123 -- stays open
            os.set_inheritable(stream.fileno(), True)  # as those of a shell are
            setattr(sys, name, stream)


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise OutputClosedError from error
    except OSError as error:
        raise PenstockError("cannot write the output", error.strerror or str(error)) from error


def emit_json(value: Any) -> None:
    """Print one JSON document."""
    emit(json.dumps(value, indent=2, ensure_ascii=False))


def emit_table(columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under headings.

    Args:
        columns: Heading to alignment, `<` or `>`.
        rows: One value per column; None is shown as `-`.
    """
    heading, *lines = format_table(columns, rows)
    emit(styled(heading, _BOLD, sys.stdout))
    for line in lines:
        emit(line)


def format_table(columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> list[str]:
    """The lines of a table, the headings first."""
    cells = [list(columns)]
    cells += [["-" if value is None else str(value) for value in row] for row in rows]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    formats = [f"{align}{width}" for align, width in zip(columns.values(), widths, strict=True)]
    return [
        _GAP.join(format(cell, form) for cell, form in zip(row, formats, strict=True)).rstrip()
        for row in cells
    ]


def message(text: str) -> None:
    """Tell the user something that is not data."""
    print(text, file=sys.stderr, flush=True)


def error(text: str) -> None:
    """Tell the user what went wrong."""
    message(f"{styled('error:', _RED, sys.stderr)} {text}")


def warning(text: str) -> None:
    """Tell the user what they have to know although the command goes on."""
    message(f"{styled('warning:', _RED, sys.stderr)} {text}")


def styled(text: str, code: str, stream: TextIO) -> str:
    """The text in a terminal style, or as it is where there must be no style."""
    return f"\x1b[{code}m{text}\x1b[0m" if has_colour(stream) else text


def has_colour(stream: TextIO) -> bool:
    """Whether the stream may get colour (no-color.org, force-color.org)."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def format_count(count: int, noun: str) -> str:
    """`1 record`, `1,000 records`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def format_duration(ms: int) -> str:
    """`0 s`, `59 s`, `3 m 20 s`, `6 d 23 h`: the two largest units."""
    seconds = ms // 1000
    parts: list[tuple[int, str]] = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, length)
        if count or parts:
            parts.append((count, unit))
    return " ".join(f"{count} {unit}" for count, unit in parts[:2] if count) or "0 s"


def format_bytes(size: float) -> str:
    """`999 B`, `1.5 kB`, `112 kB`: three digits that matter, in powers of 1,000."""
    for unit in _UNITS:
        if size < 999.5 or unit == _UNITS[-1]:
            digits = 1 if size < 9.95 and unit != "B" else 0
            return f"{size:.{digits}f} {unit}"
        size /= 1000
    raise AssertionError("the last unit takes every size")
