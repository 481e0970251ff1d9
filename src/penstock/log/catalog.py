"""Which topics exist: a journal, and the same facts beside every partition's segments.

A topic's description carries a revision. It is written into the folder of each of its partitions
(`topic.json`) and into the journal (`catalog.journal`); at opening the higher revision wins, so that a
damaged journal never orphans data and a damaged folder never hides a topic. Entries are JSON:

    {"topic": NAME, "id": UUID, "partitions": N, "config": {...}, "revision": R}
    {"deleted": UUID}          the topic's folders may be removed
    {"producer_ids": N}        all producer ids below N may have been given out
    {"epoch": N}               a start, which marks what it appends with N
    {"quota": CLIENT_ID, "rates": {...}}    of a client, or null for all others; no rates: no quota
    {"group": NAME, "config": {...}}        a group's settings; none: all are the defaults
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from penstock.crc32c import crc32c
from penstock.files import Files, read_whole, write_all_atomically
from penstock.limits import (
    EPOCHS_MAX,
    MIB,
    PARTITIONS_PER_TOPIC_MAX,
    PRODUCER_IDS_MAX,
    TOPIC_NAME_CHARS_MAX,
)
from penstock.log.journal import NOT_UNDERSTOOD, Journal

IDENTITY_FILE = "topic.json"
_REWRITE_BYTES = 4 * MIB
_NAME = re.compile(rf"[a-zA-Z0-9._-]{{1,{TOPIC_NAME_CHARS_MAX}}}")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """A topic as the catalog knows it."""

    name: str
    id: UUID
    partitions: int
    config: dict[str, str] = field(default_factory=dict)
    revision: int = 0

    def encode(self) -> bytes:
        """As JSON."""
        fields = {
            "topic": self.name,
            "id": str(self.id),
            "partitions": self.partitions,
            "config": self.config,
            "revision": self.revision,
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> TopicEntry:
        """From decoded JSON; raises one of NOT_UNDERSTOOD on anything else."""
        entry = cls(
            name=str(fields["topic"]),
            id=UUID(fields["id"]),
            partitions=int(fields["partitions"]),
            config={str(k): str(v) for k, v in fields["config"].items()},
            revision=int(fields["revision"]),
        )
        # topic.json has no checksum: damage must not name folders elsewhere, or a billion of them.
        if not _NAME.fullmatch(entry.name):
            raise ValueError(f"no topic can be named {entry.name[:60]!r}")
        if not 1 <= entry.partitions <= PARTITIONS_PER_TOPIC_MAX:
            raise ValueError(f"no topic has {entry.partitions} partitions")
        return entry


def write_identities(
    files: Files, topics: Path, folders: Iterable[Path], entry: TopicEntry
) -> None:
    """Write topic.json into partitions' folders, synced. Runs on the commit thread."""
    data = _with_checksum(entry.encode())
    write_all_atomically(files, topics, {folder / IDENTITY_FILE: data for folder in folders})


def read_identity(files: Files, folder: Path) -> TopicEntry | None:
    """The topic a folder says it belongs to, or None if it cannot tell."""
    try:
        data = read_whole(files, folder / IDENTITY_FILE)
        text = data.split(b"\n")[0]
        if data != _with_checksum(text):
            return None
        return TopicEntry.from_fields(json.loads(text))
    except (OSError, *NOT_UNDERSTOOD):
        return None


def _with_checksum(text: bytes) -> bytes:
    """A second line with the CRC-32C of the first: a flipped bit must not make another topic."""
    return text + b"\n%08x\n" % crc32c(text)


class Catalog:
    """The journal of topics. Appending does not sync; commit rounds do (`sync`)."""

    def __init__(self, files: Files, path: Path) -> None:
        self.topics: dict[UUID, TopicEntry] = {}
        self.deleted: set[UUID] = set()
        self.next_producer_id = 0
        self.epoch: int | None = None
        """That of the last start that is known; None if there is none."""
        self.quotas: dict[str | None, dict[str, float]] = {}
        self.group_configs: dict[str, dict[str, str]] = {}
        self._journal = Journal(files, path)
        for payload in self._journal.entries:
            self._apply(payload)
        self.torn = self._journal.torn

    def renew(self) -> None:
        """Make certain what was found after a crash."""
        self._journal.renew()

    def sync(self) -> None:
        """Make every entry survive a power failure."""
        self._journal.sync()

    def put(self, entry: TopicEntry) -> None:
        """Add or replace a topic."""
        self._append(entry.encode())
        self.topics[entry.id] = entry

    def delete(self, topic_id: UUID) -> None:
        """Remove a topic; from now on its folders may go."""
        self._append(_json({"deleted": str(topic_id)}))
        self.topics.pop(topic_id, None)
        self.deleted.add(topic_id)

    def _skip_producer_ids(self, below: int) -> None:
        if below > PRODUCER_IDS_MAX:
            raise ValueError("more producer ids than there are")
        self.next_producer_id = max(self.next_producer_id, below)

    def reserve_producer_ids(self, below: int) -> None:
        """Note that ids up to below may be in use."""
        self._append(_json({"producer_ids": below}))
        self.next_producer_id = below

    def _take_epoch(self, epoch: int) -> None:
        if not 0 <= epoch < EPOCHS_MAX:
            raise ValueError("more starts than can be counted")
        self.epoch = epoch

    def begin_epoch(self, epoch: int) -> None:
        """Note that batches may be marked with it."""
        self._append(_json({"epoch": epoch}))
        self.epoch = epoch

    def put_quota(self, client_id: str | None, rates: dict[str, float]) -> None:
        """Set the rates of a client id, or of all others; none to remove them."""
        self._append(_json({"quota": client_id, "rates": rates}))
        self._take_quota(client_id, rates)

    def _take_quota(self, client_id: str | None, rates: dict[str, float]) -> None:
        if rates:
            self.quotas[client_id] = rates
        else:
            self.quotas.pop(client_id, None)

    def put_group_config(self, group: str, config: dict[str, str]) -> None:
        """Set all settings of a group; none to remove them."""
        self._append(_json({"group": group, "config": config}))
        self._take_group_config(group, config)

    def _take_group_config(self, group: str, config: dict[str, str]) -> None:
        if config:
            self.group_configs[group] = config
        else:
            self.group_configs.pop(group, None)

    def _append(self, payload: bytes) -> None:
        """Write an entry; only when that has worked does memory follow."""
        if self._journal.size + len(payload) > _REWRITE_BYTES + 2 * self._live_bytes():
            self._journal.replace([*self._live(), payload])
        else:
            self._journal.append(payload)

    def _live(self) -> Iterable[bytes]:
        yield _json({"producer_ids": self.next_producer_id})
        if self.epoch is not None:
            yield _json({"epoch": self.epoch})
        for client_id, rates in self.quotas.items():
            yield _json({"quota": client_id, "rates": rates})
        for group, config in self.group_configs.items():
            yield _json({"group": group, "config": config})
        for entry in self.topics.values():
            yield entry.encode()
        for topic_id in self.deleted:
            yield _json({"deleted": str(topic_id)})

    def _live_bytes(self) -> int:
        entries = len(self.topics) + len(self.deleted) + len(self.quotas) + len(self.group_configs)
        return 200 * entries

    def _apply(self, payload: bytes) -> None:
        try:
            fields = json.loads(payload)
            if "deleted" in fields:
                topic_id = UUID(fields["deleted"])
                self.topics.pop(topic_id, None)
                self.deleted.add(topic_id)
            elif "producer_ids" in fields:
                self._skip_producer_ids(int(fields["producer_ids"]))
            elif "epoch" in fields:
                self._take_epoch(int(fields["epoch"]))
            elif "quota" in fields:
                client_id = None if fields["quota"] is None else str(fields["quota"])
                rates = {str(kind): float(rate) for kind, rate in fields["rates"].items()}
                self._take_quota(client_id, rates)
            elif "group" in fields:
                config = {str(name): str(value) for name, value in fields["config"].items()}
                self._take_group_config(str(fields["group"]), config)
            else:
                entry = TopicEntry.from_fields(fields)
                self.topics[entry.id] = entry
        except NOT_UNDERSTOOD as error:
            # Whole by its checksum, so another version wrote it: what it meant is not guessed.
            _log.error("catalog entry not understood and left out: %r (%s)", payload[:80], error)


def _json(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
