"""`penstock log`: look at a partition's files, check them, repair them, without asking a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import output
from penstock.cli.options import Format, Json, Output, wants_json
from penstock.errors import (
    ConflictError,
    DamagedLogError,
    NotFoundError,
    PenstockError,
    StorageError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.log.verify import Damage, FoundBatch

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Dump, verify and repair the log's files on disk.",
)

_DUMP_EXAMPLES: Final = (
    "\b\n"
    "Examples:\n"
    "  penstock log dump data/topics/orders-0\n"
    "  penstock log dump data/topics/orders-0 --records -o json"
)
_VERIFY_EXAMPLES: Final = (
    "\b\n"
    "Examples:\n"
    "  penstock log verify data                   every partition of a data folder\n"
    "  penstock log verify data/topics/orders-0   one partition"
)
_REPAIR_EXAMPLES: Final = (
    "\b\n"
    "Examples:\n"
    "  penstock log repair data/topics/orders-0 --skip             shows what would be lost\n"
    "  penstock log repair data/topics/orders-0 --skip --execute   does it\n"
    "  penstock log repair data/topics/orders-0 --truncate --execute"
)

PartitionFolder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="A partition's folder, DIR/topics/TOPIC-N.")
]


@app.command("dump", epilog=_DUMP_EXAMPLES)
def dump(
    folder: PartitionFolder,
    records: Annotated[bool, typer.Option("--records", help="Show the records too.")] = False,
    output_format: Output = Format.TABLE,
    json: Json = False,
) -> None:
    """Show every batch of a partition, one line each (with -o json: one object each)."""
    from penstock.files import OsFiles  # noqa: PLC0415 -- keeps --help fast
    from penstock.log.verify import Damage  # noqa: PLC0415

    as_json = wants_json(output_format, json)
    files = OsFiles()
    for found in _scan(folder):
        if isinstance(found, Damage):
            facts: dict[str, Any] = {
                "damage": found.cause,
                **_place(found.base_offset, found.position),
            }
            facts["first_offset"] = found.first_offset
        else:
            header = found.header
            facts = {
                "offsets": [header.base_offset, header.last_offset],
                **_place(found.base_offset, found.position),
                "bytes": header.size,
                "codec": header.codec,
                "max_timestamp": header.max_timestamp,
                "producer": [header.producer_id, header.producer_epoch, header.base_sequence],
            }
            if records:
                facts["records"] = _records(files, folder, found.base_offset, found.position)
        _emit_facts(facts, as_json=as_json)


def _place(base_offset: int, position: int) -> dict[str, Any]:
    return {"segment": f"{base_offset:020d}.log", "position": position}


def _records(files: Any, folder: Path, base_offset: int, position: int) -> list[dict[str, Any]]:
    from penstock.cli.records import content_fields  # noqa: PLC0415 -- keeps --help fast
    from penstock.log.segment import segment_path  # noqa: PLC0415
    from penstock.record.batch import HEADER_BYTES, parse  # noqa: PLC0415
    from penstock.record.decode import decode  # noqa: PLC0415

    file = files.open(segment_path(folder, base_offset))
    size = parse(file.pread(HEADER_BYTES, position)).size
    return [
        {"offset": record.offset, "timestamp": record.timestamp}
        | content_fields(record.key, record.value, record.headers)
        for record in decode(file.pread(size, position))
    ]


def _emit_facts(facts: dict[str, Any], *, as_json: bool) -> None:
    import json as json_module  # noqa: PLC0415

    if as_json:
        output.emit(json_module.dumps(facts, ensure_ascii=False))
        return
    records = facts.pop("records", [])
    _emit_line("", facts)
    for record in records:
        headers = json_module.dumps(record["headers"], ensure_ascii=False)
        _emit_line("    ", record | {"headers": headers})


def _emit_line(indent: str, facts: dict[str, Any]) -> None:
    """A line for people: what records hold must neither break it nor steer the terminal."""
    from penstock.cli.records import safe_for_terminal  # noqa: PLC0415 -- keeps --help fast

    line = indent + "  ".join(f"{name}={_plain(value)}" for name, value in facts.items())
    output.emit(safe_for_terminal(line.encode()).decode().removesuffix("\n"))


def _plain(value: Any) -> str:
    return "..".join(map(str, value)) if isinstance(value, list) else str(value)


@app.command("verify", epilog=_VERIFY_EXAMPLES)
def verify(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A data folder, or one partition's folder.")
    ],
) -> None:
    """Check every batch: its checksum, its place, its order. Exit code 7 if any is damaged.

    What cannot be read is said, and the rest is checked; the exit code is then 1.
    """
    folders = [folder]
    if (folder / "topics").is_dir():
        folders = sorted(path for path in (folder / "topics").iterdir() if path.is_dir())
    damaged = unread = 0
    for partition in folders:
        try:
            damaged += _verify_partition(partition)
        except (NotFoundError, StorageError) as error:
            if partition is folder:
                raise
            unread += 1
            output.emit(f"{partition.name}: NOT CHECKED: {error.cause}")
    operation = f"verify {folder}"
    if damaged:
        cause = f"{output.format_count(damaged, 'damaged place')} found"
        raise DamagedLogError(operation, cause, "see `penstock log repair --help`")
    if unread:
        cause = f"{output.format_count(unread, 'partition')} could not be read"
        raise StorageError(operation, cause, "see above why, and verify them again")


def _verify_partition(partition: Path) -> int:
    """Print what is found in a partition's folder; the number of damaged places."""
    from penstock.files import OsFiles  # noqa: PLC0415 -- keeps --help fast
    from penstock.log.verify import Damage, is_in_memory  # noqa: PLC0415

    if is_in_memory(OsFiles(), partition):
        output.emit(f"{partition.name}: nothing of it is on disk (penstock.durability=memory)")
        return 0
    damaged = batches = records = 0
    found: FoundBatch | Damage | None = None
    for found in _scan(partition):
        if isinstance(found, Damage):
            damaged += 1
            place = f"segment {found.base_offset:020d}.log, byte {found.position}"
            output.emit(
                f"{partition.name}: DAMAGED at offset {found.first_offset} ({place}): {found.cause}"
            )
        else:
            batches += 1
            records += found.header.record_count
    if isinstance(found, Damage) and found.next_offset < 0:
        # From outside the two look alike: where the durable end was, a start knows.
        output.emit(
            f"{partition.name}: after a crash this may be a torn tail, which a start cuts off"
        )
    output.emit(f"{partition.name}: {output.format_count(records, 'record')} in {batches} batches")
    return damaged


def _scan(folder: Path) -> Iterator[FoundBatch | Damage]:
    from penstock.files import OsFiles  # noqa: PLC0415 -- keeps --help fast
    from penstock.log.verify import scan  # noqa: PLC0415

    try:
        yield from scan(OsFiles(), folder)
    except OSError as error:
        raise StorageError(f"read {folder}", error.strerror or str(error)) from error


@app.command("repair", epilog=_REPAIR_EXAMPLES)
def repair(
    folder: PartitionFolder,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="End the log before the first damage.")
    ] = False,
    skip: Annotated[
        bool, typer.Option("--skip", help="Leave out the damaged batches only; offsets get a gap.")
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it; without, only show it.")
    ] = False,
) -> None:
    """Make a damaged partition usable again, and say exactly which offsets are lost.

    The partition is first copied, as it was found, to the data folder's quarantine. No server may
    use the folder meanwhile.
    """
    if truncate == skip:
        raise UsageError(
            f"repair {folder}", "it is not said how", "give one of --truncate and --skip"
        )
    try:
        _repair(folder, truncate=truncate, execute=execute)
    except OSError as error:
        raise _not_repaired(folder, error) from error


def _not_repaired(folder: Path, error: OSError) -> PenstockError:
    """What to say of a folder that the system does not let us repair."""
    operation = f"repair {folder}"
    cause = f"{error.strerror}: {error.filename}" if error.filename else str(error)
    if isinstance(error, PermissionError):
        return UsageError(operation, cause, "run it as the user whose folder it is")
    remedy = "check that disk, and run it again; a repair that was interrupted has lost nothing"
    return StorageError(operation, cause, remedy)


def _repair(folder: Path, *, truncate: bool, execute: bool) -> None:
    from penstock.clock import SystemClock  # noqa: PLC0415 -- keeps --help fast
    from penstock.files import FolderLock, OsFiles  # noqa: PLC0415
    from penstock.log import repair as repairs  # noqa: PLC0415

    files = OsFiles()
    data = folder.resolve().parent.parent
    if not (data / "format.json").exists():
        raise UsageError(
            f"repair {folder}", "it is not in a data folder", "name a folder DIR/topics/TOPIC-N"
        )
    try:
        lock = FolderLock(data / "lock")
    except ConflictError as error:
        raise ConflictError(f"repair {folder}", error.cause, "stop that process first") from error
    try:
        choice = repairs.Choice.TRUNCATE if truncate else repairs.Choice.SKIP
        plan = repairs.plan(files, data, folder.resolve(), choice, SystemClock())
        for loss in plan.losses:
            upto = f"to {loss.next_offset - 1}" if loss.next_offset >= 0 else "to the end"
            output.emit(
                f"lost: offsets {loss.first_offset} {upto}, {output.format_bytes(loss.size)}"
            )
        if not plan.losses:
            output.emit("no damage found: nothing to repair")
        elif execute:
            aside = repairs.execute(files, data, folder.resolve(), plan, SystemClock())
            output.emit(f"repaired: the log ends at offset {plan.end_offset}")
            output.emit(f"kept as it was found: {aside}")
        else:
            output.message("nothing was changed; add --execute to do this")
    finally:
        lock.release()
