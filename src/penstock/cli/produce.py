"""`penstock produce`: lines in, records out, every one acknowledged."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from penstock.cli import output
from penstock.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, parse_pairs
from penstock.errors import ConflictError, NotFoundError, UsageError

if TYPE_CHECKING:
    from penstock.client.produce import OutgoingRecord, RecordSender

EXAMPLES: Final = (
    "\b\n"
    "Examples:\n"
    "  echo hello | penstock produce greetings --create\n"
    "  penstock produce orders --file orders.csv --key-separator , --compression zstd\n"
    '  echo \'{"key": "alice", "value": {"total": 12}}\' | penstock produce orders --json\n'
    "  penstock consume orders --json | penstock produce orders-copy --json"
)
_PROGRESS_SECONDS: Final = 0.1
_TIMEOUT_SECONDS_MAX: Final = 86_400.0
_CLEAR_LINE: Final = "\r\x1b[K"


def _as_seconds(value: float) -> float:
    if math.isnan(value):  # which is neither below the least nor above the most
        raise typer.BadParameter("nan is not a number of seconds")
    return value


class Compression(StrEnum):
    """How batches are packed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Read this file.  [default: standard input]",
    ),
]
JsonLines = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Each line is a JSON object with value, and optionally key, headers, partition, "
        "timestamp; a value that is not a string is sent as JSON.",
    ),
]
KeySeparator = Annotated[
    str | None,
    typer.Option(
        "--key-separator", "-k", metavar="TEXT", help="Each line is KEY, this text, VALUE."
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="For every record; repeatable."),
]
Partition = Annotated[
    int | None,
    typer.Option(
        "--partition",
        "-p",
        min=0,
        metavar="N",
        help="Partition to write to.  [default: by key, or any]",
    ),
]


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to write to.")],
    *,
    file: File = None,
    json: JsonLines = False,
    key_separator: KeySeparator = None,
    header: Headers = None,
    partition: Partition = None,
    compression: Annotated[
        Compression, typer.Option("--compression", "-z", help="How to compress.")
    ] = Compression.NONE,
    create: Annotated[
        bool, typer.Option("--create", help="Create the topic if it does not exist.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            min=1.0,
            max=_TIMEOUT_SECONDS_MAX,
            metavar="SECONDS",
            callback=_as_seconds,
            help="How long to wait for an acknowledgement.",
        ),
    ] = 30.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write lines to a topic, one record each.

    Exits with 0 only after the broker has acknowledged every record. Otherwise it says how many
    were acknowledged. What the broker refuses for the time being, because its disk is full for
    instance, is tried again until --timeout is over.
    """
    from penstock.cli import records  # noqa: PLC0415 -- keeps --help fast
    from penstock.client.produce import RecordSender  # noqa: PLC0415

    _check_separator(topic, key_separator, json=json)
    headers = [(name, value.encode()) for name, value in parse_pairs("--header", header or [])]
    if create:
        _create(bootstrap, topic, partition)
    with _source(file) as lines:
        if json:
            found = records.read_json(lines, headers=headers, partition=partition)
        else:
            separator = None if key_separator is None else key_separator.encode()
            found = records.read_plain(
                lines, key_separator=separator, headers=headers, partition=partition
            )
        codec = None if compression is Compression.NONE else compression.value
        with RecordSender(bootstrap, topic, compression=codec, delivery_seconds=timeout) as sender:
            _send_all(sender, found, quiet=quiet, typed=lines.isatty())


def _check_separator(topic: str, separator: str | None, *, json: bool) -> None:
    operation = f"cannot produce to {topic}"
    if json and separator is not None:
        cause = "--key-separator is for lines of text, and --json names keys"
        raise UsageError(operation, cause, "use one of the two")
    if separator == "":
        raise UsageError(operation, "the key separator is empty", "give it a text")


def _send_all(
    sender: RecordSender, records: Iterable[OutgoingRecord], *, quiet: bool, typed: bool
) -> None:
    """Send everything and wait for it; report what was acknowledged, whatever happens."""
    # Whoever types sees every line already, and progress would write over it.
    progress = _Progress(sender, shown=sys.stderr.isatty() and not quiet and not typed)
    complete = False
    if typed and not quiet:
        output.message("one record per line; Ctrl-D ends the input")
    try:
        try:
            for record in records:
                sender.send(record)
                progress.update()
        finally:
            # Bad input or Ctrl-C end the reading, but not what was read before.
            sender.finish()
        complete = True
    finally:
        progress.clear()
        if not complete:
            pending = sender.sent - sender.acknowledged
            note = f"; {pending:,} not acknowledged" if pending else ""
            output.message(f"acknowledged {progress.summary()}{note}")
        elif not quiet:
            output.message(progress.summary())


class _Progress:
    """A line on standard error that is written over, and the summary that stays."""

    def __init__(self, sender: RecordSender, *, shown: bool) -> None:
        self._sender = sender
        self._shown = shown
        self._started = self._printed = time.monotonic()

    def update(self) -> None:
        if self._shown and time.monotonic() - self._printed > _PROGRESS_SECONDS:
            self._printed = time.monotonic()
            print(f"{_CLEAR_LINE}{self.summary()}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._shown:
            print(_CLEAR_LINE, end="", file=sys.stderr, flush=True)

    def summary(self) -> str:
        count = output.format_count(self._sender.acknowledged, "record")
        size = output.format_bytes(self._sender.acknowledged_bytes)
        return f"{count}, {size}, {time.monotonic() - self._started:.2f} s"


def _create(bootstrap: str, topic: str, partition: int | None) -> None:
    from penstock.client import topics  # noqa: PLC0415 -- keeps --help fast

    with contextlib.suppress(ConflictError):
        if partition is not None:
            # Before it is there: a topic that was made and then not written to is nobody's wish.
            count = topics.planned_partitions(bootstrap, topic)
            if partition >= count:
                cause = f"it would be created with {output.format_count(count, 'partition')}"
                command = f"penstock topics create {topic} --partitions {partition + 1}"
                raise NotFoundError(
                    f"cannot produce to partition {partition} of {topic}", cause, f"use `{command}`"
                )
        topics.create_topic(bootstrap, topic)
        output.message(f"created {topic}")


@contextlib.contextmanager
def _source(file: Path | None) -> Iterator[BinaryIO]:
    if file is None:
        yield sys.stdin.buffer
        return
    with file.open("rb") as opened:
        yield opened
