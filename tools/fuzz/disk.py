"""What is read from the disk: journals, checkpoints, identities, and whole folders."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from struct import Struct, pack
from uuid import UUID

from penstock.broker.producers import ProducerTable
from penstock.crc32c import crc32c
from penstock.errors import DamagedLogError, FormatError, NotFoundError, PenstockError
from penstock.limits import PARTITIONS_PER_TOPIC_MAX
from penstock.log import checkpoint, verify
from penstock.log.catalog import Catalog, TopicEntry, read_identity
from penstock.log.committed import Committed
from penstock.log.epochs import end_of_epoch
from penstock.log.journal import Journal
from penstock.log.offsets import OffsetsJournal, committed
from penstock.log.partition import Partition
from penstock.log.positions import PartitionId, Position, Positions
from penstock.log.reading import newest_by_time, offset_for_time, read
from penstock.log.recovery import Recovery
from penstock.log.repair import Choice, plan
from penstock.log.settings import LogSettings
from penstock.memory_files import MemoryFiles
from penstock.record.batch import HEADER_BYTES, LENGTH_OVERHEAD, MAGIC, parse
from penstock.record.encode import NewRecord, encode
from penstock.testing.clock import ManualClock
from tools.fuzz.decoders import NOW
from tools.fuzz.mutate import fix_batch_checksum, garbage, mutated
from tools.fuzz.stage import DATA, TOPICS, Disk, Stage, copied_disk, topic_id
from tools.fuzz.target import BrokenError, Step, Target

_PATH = Path("/file")
_NAME = Struct(">H")
_SIZE = Struct(">I")
_FRAME = Struct(">II")
_MAGIC = b"PENJRNL1"
_STRANGE = ("x.log", "7.log", "00000000000000000007.log", "notes.txt", "0.index", "a.b.c", "-1.log")

Image = dict[str, bytes]
"""Files by their path below the data folder."""


def image_of(disk: MemoryFiles, folder: Path) -> Image:
    """Everything below a folder."""
    found: Image = {}
    for name in disk.list(folder):
        path = folder / name
        try:
            found[name] = disk.open(path).pread(1 << 30, 0)
        except IsADirectoryError:
            found |= {f"{name}/{inner}": data for inner, data in image_of(disk, path).items()}
    return found


def packed(image: Mapping[str, bytes]) -> bytes:
    """A folder as one input."""
    parts = [
        _NAME.pack(len(name.encode())) + name.encode() + _SIZE.pack(len(data)) + data
        for name, data in image.items()
    ]
    return b"".join(parts)


def unpacked(data: bytes, folder: Path) -> Disk:
    """The disk an input describes."""
    disk = Disk()
    disk.make_folder(folder)
    position = 0
    while position < len(data):
        (size,) = _NAME.unpack_from(data, position)
        position += _NAME.size
        path = folder / data[position : position + size].decode()
        position += size
        (size,) = _SIZE.unpack_from(data, position)
        position += _SIZE.size
        disk.make_folder(path.parent)
        disk.open(path, create=True).pwrite([data[position : position + size]], 0)
        position += size
    return disk


def journal(payloads: list[bytes]) -> bytes:
    """The file of a journal."""
    return _MAGIC + b"".join(_FRAME.pack(len(p), crc32c(p)) + p for p in payloads)


class _File(Target):
    """One file in memory."""

    corpus: list[bytes]

    def _generate(self, random: Random) -> bytes:
        if random.random() < 0.05:
            return garbage(random, 300)
        return mutated(random, random.choice(self.corpus), self.corpus)

    @staticmethod
    def _disk(data: bytes) -> MemoryFiles:
        files = MemoryFiles()
        files.open(_PATH, create=True).pwrite([data], 0)
        return files


class Journals(_File):
    """Whole entries are found, whatever follows is kept as torn."""

    name = "journal"
    share = 40_000

    def __init__(self) -> None:
        self.corpus = [journal([b"a" * n for n in sizes]) for sizes in ((), (1,), (5, 300, 20))]

    def _run(self, data: bytes, step: Step) -> None:
        found = Journal(self._disk(data), _PATH)
        whole = journal(found.entries) + found.torn
        if data.startswith(_MAGIC) and whole.rstrip(b"\0") != data.rstrip(b"\0"):
            raise BrokenError("a journal is more or less than its entries and its torn end")
        found.renew()
        found.append(b"more")


class PositionFiles(_File):
    """The journal of durable ends, with entries of any size."""

    name = "positions"
    share = 20_000

    def __init__(self) -> None:
        entry = topic_id("orders").bytes + pack(">iqq", 0, 17, 3)
        self.corpus = [entry, entry * 3, entry[:-1], b"x"]

    def _generate(self, random: Random) -> bytes:
        if random.random() < 0.3:
            return mutated(random, journal(self.corpus), self.corpus)
        payloads = [mutated(random, random.choice(self.corpus), self.corpus) for _ in range(3)]
        return journal([payload for payload in payloads if payload])

    def _run(self, data: bytes, step: Step) -> None:
        clock = ManualClock()
        positions = Positions(self._disk(data), _PATH, clock)
        identity = PartitionId(topic_id("orders"), 0)
        positions.get(identity)
        positions.record({identity: Position(5, 2)})
        positions.rewrite()


class Catalogs(_File):
    """Topics as JSON with a right checksum, which an earlier or later version may have written."""

    name = "catalog"
    share = 30_000

    def __init__(self) -> None:
        entry = TopicEntry("orders", topic_id("orders"), 3, {"retention.ms": "5"}, 2)
        self.corpus = [
            entry.encode(),
            b'{"deleted":"%s"}' % str(entry.id).encode(),
            b'{"producer_ids":1000}',
            entry.encode().replace(b"orders", b"../x"),
            entry.encode().replace(b":3,", b":1e999,"),
            entry.encode().replace(b":3,", b":1000000000,"),
            b'{"producer_ids":Infinity}',
            b'{"producer_ids":-5}',
            b"[" * 5000,
            b"null",
            b'"deleted"',
            b"5",
        ]

    def _generate(self, random: Random) -> bytes:
        payloads = [mutated(random, random.choice(self.corpus), self.corpus) for _ in range(3)]
        return journal([payload for payload in payloads if payload])

    def _run(self, data: bytes, step: Step) -> None:
        catalog = Catalog(self._disk(data), _PATH)
        for entry in catalog.topics.values():
            must_be_sound(entry)
        if not isinstance(catalog.next_producer_id, int) or catalog.next_producer_id < 0:
            raise BrokenError(f"producer ids from {catalog.next_producer_id}")
        catalog.renew()
        catalog.reserve_producer_ids(catalog.next_producer_id + 1)


class GroupOffsets(_File):
    """Committed offsets: lines of JSON in a journal."""

    name = "offsets"
    share = 20_000

    def __init__(self) -> None:
        place = [str(topic_id("orders")), 0]
        lines: list[object] = [
            {"group": "g", "type": "t", "time": 5, "offsets": [[*place, 17, 0, "note"]]},
            {"group": "g", "type": "t", "empty_since": 5},
            {"group": "g", "removed": [place]},
            {"group": "g", "deleted": True},
            {"topic_deleted": place[0]},
            {"group": [], "type": {}, "time": 1e400, "offsets": {}},
            [],
        ]
        self.corpus = [json.dumps(line).encode() for line in lines]
        self.corpus.append(b"\n".join(self.corpus))

    def _generate(self, random: Random) -> bytes:
        payloads = [mutated(random, random.choice(self.corpus), self.corpus) for _ in range(3)]
        return journal([payload for payload in payloads if payload])

    def _run(self, data: bytes, step: Step) -> None:
        offsets = OffsetsJournal(self._disk(data), _PATH)
        offsets.renew()
        identity = PartitionId(topic_id("orders"), 0)
        offsets.queue(committed("g", "consumer", {identity: Committed(1, 0, "", NOW)}))
        offsets.hand_over()()


class Identities(_File):
    """topic.json, which has no checksum: what is read must be what can be opened."""

    name = "identity"
    share = 40_000

    def __init__(self) -> None:
        self.corpus = Catalogs().corpus

    def _run(self, data: bytes, step: Step) -> None:
        files = MemoryFiles()
        files.open(Path("/topic.json"), create=True).pwrite([data], 0)
        entry = read_identity(files, Path("/"))
        if entry is not None:
            must_be_sound(entry)


def must_be_sound(entry: TopicEntry) -> None:
    """Whoever opens the topic makes folders from its name and number of partitions."""
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", entry.name) or not isinstance(entry.id, UUID):
        raise BrokenError(f"a topic named {entry.name[:60]!r}")
    if not 1 <= entry.partitions <= PARTITIONS_PER_TOPIC_MAX:
        raise BrokenError(f"a topic with {entry.partitions} partitions")


class Checkpoints(_File):
    """A checkpoint and the producers in it: what the checksum does not vouch for is not read."""

    name = "checkpoint"
    share = 40_000

    def __init__(self) -> None:
        files = image_of(copied_disk(), DATA)
        self.corpus = [data for name, data in files.items() if name.endswith(".checkpoint")]

    def _run(self, data: bytes, step: Step) -> None:
        found = checkpoint.decode(data)
        if found is not None:
            table = ProducerTable(ManualClock())
            table.restore(found.state)
            table.snapshot()


class _Folder(Target):
    """Files of which some are damaged, missing, renamed, or do not belong there."""

    images: list[Image]

    def _generate(self, random: Random) -> bytes:
        image = dict(random.choice(self.images))
        for _ in range(random.choice((1, 1, 2, 3))):
            self._damage(random, image)
        return packed(image)

    def _damage(self, random: Random, image: Image) -> None:
        name = random.choice(sorted(image) or ["empty"])
        folder = name.rpartition("/")[0]
        other = "/".join(filter(None, (folder, random.choice(_STRANGE))))
        kind = random.random()
        if kind < 0.05:
            image.pop(name, None)
        elif kind < 0.1:
            image[other] = image.pop(name, b"")
        elif kind < 0.15:
            image[other] = garbage(random, 200)
        elif kind < 0.2:
            image[name] = image[random.choice(sorted(image))] if image else b""
        else:
            image[name] = self._damaged(random, name, image.get(name, b""), list(image.values()))

    @staticmethod
    def _damaged(random: Random, name: str, data: bytes, corpus: list[bytes]) -> bytes:
        changed = bytearray(mutated(random, data, corpus))
        if name.endswith(".log") and random.random() < 0.5:
            _fix_checksums(changed)
        return bytes(changed)


def _fix_checksums(segment: bytearray) -> None:
    """What a hostile client, or a mistake of ours, could have stored: whole, and yet wrong."""
    position = 0
    while position + HEADER_BYTES <= len(segment):
        header = parse(segment, position)
        if header.magic != MAGIC or not HEADER_BYTES <= header.size <= len(segment) - position:
            return
        batch = bytearray(segment[position : position + header.size])
        fix_batch_checksum(batch)
        segment[position : position + header.size] = batch
        position += header.length + LENGTH_OVERHEAD


class PartitionFolders(_Folder):
    """Recovery of one partition: refused as damaged, or clean. The same for verify and repair."""

    name = "recovery"
    share = 40_000

    def __init__(self) -> None:
        disk = copied_disk()
        self.images = [image_of(disk, DATA / "topics" / "orders-0")]
        stage = Stage(disk)
        stage.broker.close()
        self.images.append(image_of(disk, DATA / "topics" / "orders-0"))

    def _generate(self, random: Random) -> bytes:
        # What is known to be durable, and whether the last stop was an orderly one.
        known = random.choice((0, 0, 10, 75, 79, 1000))
        return pack(">q?", known, random.random() < 0.3) + super()._generate(random)

    def _run(self, data: bytes, step: Step) -> None:
        folder = Path("/orders-0")
        known, clean = int.from_bytes(data[:8], "big"), data[8:9] == b"\x01"
        disk = unpacked(data[9:], folder)
        with suppress(NotFoundError):
            list(verify.scan(disk, folder))
        for choice in Choice:
            with suppress(PenstockError):
                plan(disk, folder.parent, folder, choice, ManualClock())
        settings = LogSettings(segment_bytes=900, index_interval_bytes=100)
        table = ProducerTable(ManualClock())
        recovery = Recovery(disk, folder, Path("/aside"), settings, Position(known, 0), table)
        try:
            recovered = recovery.run(clean=clean)
        except DamagedLogError:
            return
        identity = PartitionId(topic_id("orders"), 0)
        segments = recovered.segments
        partition = Partition(identity, "orders", folder, disk, settings, table, segments, 0, 9)
        read_everything(partition)


def read_everything(partition: Partition) -> None:
    """Read as consumers do, from every offset; damage may be met, and nothing else."""
    end = min(partition.durable_offset, partition.start_offset + 200)
    for offset in range(partition.start_offset, end):
        with suppress(PenstockError):
            bytes(read(partition, offset, 500))
    for timestamp in (0, NOW + 20, NOW + 1000):
        with suppress(PenstockError):
            offset_for_time(partition, timestamp)
    with suppress(PenstockError):
        newest_by_time(partition)
    for epoch in (0, 4, partition.epoch):
        with suppress(PenstockError):
            end_of_epoch(partition, epoch)


class DataFolders(_Folder):
    """A whole data folder: the server starts or says what is wrong, and works with what is left."""

    name = "store"
    share = 15_000

    def __init__(self) -> None:
        disk = copied_disk()
        self.images = [image_of(disk, DATA)]
        Stage(disk).broker.close()
        self.images.append(image_of(disk, DATA))
        # Without the catalog everything is found again by what stands beside the segments.
        self.images.append({k: v for k, v in self.images[0].items() if k != "catalog.journal"})

    def _run(self, data: bytes, step: Step) -> None:
        disk = unpacked(data, DATA)
        try:
            stage = Stage(disk)
        except PenstockError as error:
            if isinstance(error, FormatError):
                return
            raise BrokenError(f"one bad file keeps the server from starting: {error}") from error
        self._use(stage)
        stage.broker.close()
        again = Stage(disk)
        if [topic.name for topic in again.broker.topics()] != [
            topic.name for topic in stage.broker.topics()
        ]:
            raise BrokenError("other topics after an orderly stop")
        self._use(again)

    @staticmethod
    def _use(stage: Stage) -> None:
        for topic in stage.broker.topics():
            if topic.name in TOPICS:
                for partition in topic.whole_partitions():
                    read_everything(partition)
                    with suppress(PenstockError):
                        batch = encode([NewRecord(b"more", timestamp=NOW)])
                        stage.broker.appender.append(topic, partition, batch)
        stage.settle()
        stage.broker.keep_retention()
        stage.settle()


DISK: tuple[type[Target], ...] = (
    Journals,
    PositionFiles,
    Catalogs,
    GroupOffsets,
    Identities,
    Checkpoints,
    PartitionFolders,
    DataFolders,
)
