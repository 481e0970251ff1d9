"""Offsets of a group in a file: a line `topic,partition,offset` each, as Kafka's own tools write it.

An empty offset stands for none committed, which Kafka's tools cannot say.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from penstock.client.groups import Place
from penstock.errors import PenstockError, UsageError
from penstock.files import OsFiles, write_atomically


def format_offsets(offsets: Mapping[Place, int | None]) -> bytes:
    """The contents of such a file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for (topic, partition), offset in sorted(offsets.items()):
        writer.writerow([topic, partition, "" if offset is None else offset])
    return text.getvalue().encode()


def parse_offsets(lines: Iterable[str], source: str) -> dict[Place, int | None]:
    """Read such a file; empty lines are skipped.

    Raises:
        UsageError: a line is something else, or one of an earlier partition.
    """
    found: dict[Place, int | None] = {}
    for number, row in enumerate(csv.reader(lines), 1):
        if not row:
            continue
        operation = f"cannot read line {number} of {source}"
        try:
            topic, partition, offset = (cell.strip() for cell in row)
            place = (topic, _natural(partition))
            value = _natural(offset) if offset else None
        except ValueError as error:
            remedy = "write TOPIC,PARTITION,OFFSET, without an offset for none committed"
            raise UsageError(operation, f"'{','.join(row)}' is no offset", remedy) from error
        if place in found:
            raise UsageError(operation, f"{topic} partition {partition} was there before")
        found[place] = value
    return found


def read_offsets(path: Path) -> dict[Place, int | None]:
    """Read the offsets in a file.

    Raises:
        UsageError: the file cannot be read, or holds something else.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"cannot read {path}", cause, "check --from-file") from error
    return parse_offsets(text.splitlines(), str(path))


def write_offsets(path: Path, offsets: Mapping[Place, int | None]) -> None:
    """Write such a file; on disk for good when this returns.

    Raises:
        UsageError: there is a file of that name: it may be the only way back to what it holds.
        PenstockError: it cannot be written.
    """
    operation = f"cannot write {path}"
    if path.exists():
        raise UsageError(operation, "it exists", "remove it or name another with --export")
    try:
        write_atomically(OsFiles(), path, format_offsets(offsets))
    except OSError as error:
        raise PenstockError(operation, error.strerror or str(error), "see --export") from error


def _natural(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) >= 2**63:
        raise ValueError(text)
    return int(text)
