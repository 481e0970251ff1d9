"""Which files of a folder of Parquet count: a version for each batch (docs/formats/parquet-manifest.md).

A version is a file `_penstock/<number>.json` that is made once, whole, and never changed. It names the
files that its batch added; every 64th names all. Who makes the next number first has it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import FormatError, NotFoundError
from penstock.spark.durable_files import DurableFolder

FOLDER: Final = "_penstock"
_FORMAT: Final = 1
# So many small files are read at most to know a version, and one of them repeats what is old.
_WHOLE_EVERY: Final = 64


@dataclass(frozen=True, slots=True)
class PartFile:
    """A file of Parquet, by its path in the folder."""

    path: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Marker:
    """The last batch of a query that is there, and the try that wrote it."""

    batch: int
    attempt: str


@dataclass(frozen=True, slots=True)
class Version:
    """What one file of the manifest says; version 0 is a folder before its first."""

    number: int
    schema: str
    markers: Mapping[str, Marker]
    added: tuple[PartFile, ...]
    all: tuple[PartFile, ...] | None

    def to_json(self) -> bytes:
        """As it is stored."""
        whole = {} if self.all is None else {"all": [_as_json(one) for one in self.all]}
        markers = {k: {"batch": m.batch, "attempt": m.attempt} for k, m in self.markers.items()}
        content: dict[str, Any] = {
            "format": _FORMAT,
            "version": self.number,
            "schema": json.loads(self.schema),
            "markers": markers,
            "added": [_as_json(one) for one in self.added],
            **whole,
        }
        return json.dumps(content, indent=1).encode()


NOTHING: Final = Version(0, "null", {}, (), ())


@dataclass(frozen=True, slots=True)
class Manifest:
    """All files of a version.

    Attributes:
        version: from 1 on; one for each batch that had rows.
        files: their addresses, in the order in which they were added.
        rows: how many they hold together.
    """

    version: int
    files: tuple[str, ...]
    rows: int


def read_manifest(
    folder: str, version: int | None = None, *, options: Mapping[str, Any] | None = None
) -> Manifest:
    """The files that hold all batches up to a version, whole; no others count.

    Args:
        folder: the address that a ParquetSink writes to.
        version: by default the newest.
        options: of its file system, as fsspec has them.

    Raises:
        NotFoundError: there is no such version.
    """
    store = DurableFolder(folder, options)
    number = newest(store).number if version is None else version
    if number < 1 or store.read(_name(number)) is None:
        cause = f"there is no version {number}" if version else "nothing has been written yet"
        raise NotFoundError(f"cannot read {folder}", cause)
    files = all_files(store, number)
    return Manifest(
        number, tuple(store.address(one.path) for one in files), sum(one.rows for one in files)
    )


def newest(store: DurableFolder, known: Version = NOTHING) -> Version:
    """The newest version, looked for from one that is known."""
    if not known.number:
        numbers = [int(n[:-5]) for n in store.names(FOLDER) if n[:-5].isdecimal()]
        if not numbers:
            return NOTHING
        known = load(store, max(numbers))
    while (data := store.read(_name(known.number + 1))) is not None:
        known = _version(data, store.path(_name(known.number + 1)))
    return known


def load(store: DurableFolder, number: int) -> Version:
    """One version that is there."""
    data = store.read(_name(number))
    if data is None:
        cause = f"{_name(number)} is missing"
        raise NotFoundError(f"cannot read {store.path('')}", cause, "restore it")
    return _version(data, store.path(_name(number)))


def all_files(store: DurableFolder, number: int) -> list[PartFile]:
    """The files of a version: those that it adds to what the versions before it have."""
    later: list[tuple[PartFile, ...]] = []
    while number:
        version = load(store, number)
        if version.all is not None:
            later.append(version.all)
            break
        later.append(version.added)
        number -= 1
    return [file for files in reversed(later) for file in files]


def commit(store: DurableFolder, version: Version, scratch: str) -> bool:
    """Make a version, by way of a scratch file; False if somebody else made one of this number."""
    whole = version.all
    if version.number % _WHOLE_EVERY == 0:
        whole = (*all_files(store, version.number - 1), *version.added)
    made = Version(version.number, version.schema, version.markers, version.added, whole)
    return store.put_new(_name(version.number), made.to_json(), scratch)


def make_durable(store: DurableFolder, version: Version) -> None:
    """See to it that a version stays that may have been made by a process that died of it."""
    store.make_durable(_name(version.number))


def _name(number: int) -> str:
    return f"{FOLDER}/{number:020}.json"


def _version(data: bytes, path: str) -> Version:
    content = json.loads(data)
    if content["format"] > _FORMAT:
        cause = f"it was written by a newer Penstock (format {content['format']})"
        raise FormatError(f"cannot read {path}", cause, "update Penstock")
    return Version(
        content["version"],
        json.dumps(content["schema"]),
        {key: Marker(**marker) for key, marker in content["markers"].items()},
        tuple(PartFile(**one) for one in content["added"]),
        tuple(PartFile(**one) for one in content["all"]) if "all" in content else None,
    )


def _as_json(file: PartFile) -> dict[str, Any]:
    return {"path": file.path, "rows": file.rows, "bytes": file.bytes}
