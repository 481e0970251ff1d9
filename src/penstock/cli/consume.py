"""`penstock consume`: records out, as lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli import output
from penstock.cli.options import DEFAULT_BOOTSTRAP, Bootstrap
from penstock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client.consume import IncomingRecord, TopicReader

EXAMPLES: Final = (
    "\b\n"
    "Where to start, in every partition:\n"
    "  --from start          the oldest record there is (the default)\n"
    "  --from end            only what is written from now on\n"
    "  --from 42             offset 42\n"
    "  --from -10            the last ten records\n"
    "  --from 2h             two hours ago (s, m, h, d)\n"
    "  --from 2026-03-01T12:00      a local time; add Z for UTC\n"
    "\n\b\n"
    "Examples:\n"
    "  penstock consume orders\n"
    "  penstock consume orders --follow --from end\n"
    "  penstock consume orders --from -1 --partition 0 --json\n"
    "  penstock consume orders --from 10m --max 100 --print-key"
)


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to read.")],
    *,
    start: Annotated[
        str, typer.Option("--from", metavar="WHERE", help="Where to start; see below.")
    ] = "start",
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", min=0, metavar="N", help="Only this partition; repeatable."
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for what is written later; Ctrl-C ends it.")
    ] = False,
    maximum: Annotated[
        int | None, typer.Option("--max", "-n", min=0, metavar="N", help="Stop after N records.")
    ] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="One JSON object per line, with everything about the record."),
    ] = False,
    print_key: Annotated[
        bool, typer.Option("--print-key", help="Print KEY, separator, VALUE.")
    ] = False,
    key_separator: Annotated[
        str,
        typer.Option(
            "--key-separator",
            "-k",
            metavar="TEXT",
            show_default="tab",
            help="What --print-key prints between key and value.",
        ),
    ] = "\t",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the records of a topic, one line each.

    They come in order within each partition. Stops at the end that the topic had when it started,
    unless --follow is given. Records that were deleted before they could be printed are reported,
    and the exit code is then 1 (with --follow, reading goes on).
    """
    from datetime import datetime  # noqa: PLC0415 -- keeps --help fast

    from penstock.cli.position import parse_start  # noqa: PLC0415
    from penstock.client.consume import TopicReader  # noqa: PLC0415

    if json and print_key:
        cause = "--print-key is for lines of text, and --json prints keys anyway"
        raise UsageError(f"cannot consume {topic}", cause, "use one of the two")
    separator = key_separator.encode() if print_key else None
    line = _formatter(json=json, key_separator=separator)
    with TopicReader(
        bootstrap,
        topic,
        start=parse_start(start, datetime.now().astimezone()),
        partitions=partition or (),
        follow=follow,
        notice=output.warning,
    ) as reader:
        _print_all(reader, line, maximum)
    if reader.gaps and not follow:
        raise typer.Exit(1)


def _formatter(*, json: bool, key_separator: bytes | None) -> Callable[[IncomingRecord], bytes]:
    from penstock.cli import records  # noqa: PLC0415 -- keeps --help fast

    if json:
        return records.format_json
    if sys.stdout.isatty():
        return lambda record: records.safe_for_terminal(records.format_plain(record, key_separator))
    return lambda record: records.format_plain(record, key_separator)


def _print_all(
    reader: TopicReader, line: Callable[[IncomingRecord], bytes], maximum: int | None
) -> None:
    left = sys.maxsize if maximum is None else maximum
    if left == 0:
        return
    for records in reader.batches():
        # One write for what came together, at once for whoever follows.
        output.emit_bytes(b"".join(map(line, records[:left])))
        left -= len(records)
        if left <= 0:
            return
