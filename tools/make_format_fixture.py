"""Makes the data folders that are kept for each version of the format.

    python -m tools.make_format_fixture tests/contract/data

writes format-N (stopped in order), format-N-crashed (killed, with a torn tail) and format-N.jsonl,
which says what was stored in both, for the version N that this Penstock writes. Run it once for a
version, when that is about to be released, and keep the result: the folders of older versions are the
proof that they still open, so they are never made again.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.topic import Topic
from penstock.files import OsFiles
from penstock.log.store import FORMAT_VERSION, LogStore
from penstock.record.batch import parse, patch
from penstock.record.encode import NewRecord, encode
from penstock.testing.clock import ManualClock

# Segments of two or three batches, and an index entry for nearly each.
_SETTINGS: Final = {"retention.ms": "-1", "segment.bytes": "400", "index.interval.bytes": "100"}
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_SECOND: Final = 1000


class Folder:
    """A broker on a folder, whose commit rounds run when we say so, and what was told to it."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.clock = ManualClock()
        self._turns: list[Callable[[], None]] = []
        self._jobs: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        data.mkdir(parents=True)
        self._store = LogStore(
            OsFiles(),
            data,
            self.clock,
            run=lambda job, done: self._jobs.append((job, done)),
            defer=self._turns.append,
            background=lambda job: job(),
        )
        self.broker = Broker(self._store, self.clock)
        self.broker.open()
        self.topics: dict[str, dict[str, Any]] = {}
        self.records: list[dict[str, Any]] = []
        self.batches: list[dict[str, Any]] = []

    def commit(self) -> None:
        """Run every round that waits."""
        while self._turns or self._jobs:
            while self._turns:
                self._turns.pop(0)()
            if self._jobs:
                job, done = self._jobs.pop(0)
                done(job())

    def create(self, name: str, partitions: int = 1, **settings: str) -> Topic:
        """A topic, noted with its settings."""
        config = _SETTINGS | {key.replace("_", "."): value for key, value in settings.items()}
        topic = self.broker.create_topic(name, partitions, config)
        self.commit()
        self.topics[name] = {"topic": name, "config": config, "starts": [0] * partitions}
        return topic

    def append(
        self, topic: Topic, records: Sequence[NewRecord], *, partition: int = 0, **options: int
    ) -> int:
        """One batch, each in a commit round of its own; the offset of its first record."""
        self.clock.advance(1)
        data = encode(records, **options)
        offset = self.broker.appender.append(topic, topic.partition(partition), data).base_offset
        self.commit()
        where = {"of": topic.name, "partition": partition}
        codec, producer = _CODECS[options.get("codec", 0)], options.get("producer_id", -1)
        for at, record in enumerate(records):
            facts = where | {"offset": offset + at, "codec": codec, "producer": producer}
            self.records.append(facts | _described(record))
        return offset

    def new(self, *values: bytes | None) -> list[NewRecord]:
        """Records of now, a second apart."""
        now = self.clock.wall_ms()
        return [NewRecord(v, timestamp=now + at * _SECOND) for at, v in enumerate(values)]

    def stop(self) -> None:
        """In order. What only this machine needs is not kept."""
        self.commit()
        self.broker.close()

    def manifest(self) -> str:
        """What was told to the broker, a line for each thing; nothing of it is read back."""
        facts = [*self.topics.values(), *self.records, *self.batches]
        return "".join(json.dumps(fact, ensure_ascii=False) + "\n" for fact in facts)


def _described(record: NewRecord) -> dict[str, Any]:
    def text(data: bytes | None) -> str | None:
        return None if data is None else data.decode()

    return {
        "timestamp": record.timestamp,
        "key": text(record.key),
        "value": text(record.value),
        "headers": [[name, text(value)] for name, value in record.headers],
    }


# -- what is stored


def fill(folder: Folder) -> None:
    """A little of everything that a version of the format must be able to say."""
    _plain(folder)
    _compressed(folder)
    _idempotent(folder)
    _shortened(folder)
    _changed(folder)
    gone = folder.create("gone")
    folder.append(gone, folder.new(b"of a topic that was deleted"))
    folder.broker.delete_topic(gone)
    folder.commit()
    del folder.topics["gone"]
    folder.records = [record for record in folder.records if record["of"] != "gone"]


def _plain(folder: Folder) -> None:
    """Several segments and partitions; every kind of key, value and header."""
    topic = folder.create("plain", 3)
    for number in range(8):
        values = [b"plain %d.%d" % (number, at) for at in range(3)]
        folder.append(topic, folder.new(*values), partition=number % 2)
    now = folder.clock.wall_ms()
    odd = [
        NewRecord(None, b"a key without a value", now),
        NewRecord(b"a value without a key", None, now),
        NewRecord(
            b"", b"", now, [("empty", b""), ("null", None), ("twice", b"1"), ("twice", b"2")]
        ),
        NewRecord("Grüße, 世界".encode(), b"text", now, [("kopf-ü", b"x")]),
    ]
    folder.append(topic, odd)


def _compressed(folder: Folder) -> None:
    topic = folder.create("compressed")
    for codec, name in enumerate(_CODECS):
        values = [f"{name} {at} ".encode() * 4 for at in range(4)]
        folder.append(topic, folder.new(*values), codec=codec)


def _idempotent(folder: Folder) -> None:
    """Two producers take turns; the batches of the last five of each are still known."""
    topic = folder.create("idempotent")
    ids = [folder.broker.new_producer_id() for _ in range(2)]
    folder.commit()
    for turn in range(7):
        for epoch, producer_id in enumerate(ids):
            values = [f"producer {producer_id}, {turn}.{at}".encode() for at in range(2)]
            records = folder.new(*values)
            written = {
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "base_sequence": turn * 2,
            }
            offset = folder.append(topic, records, **written)
            where = {"batch_of": topic.name, "offset": offset, "timestamp": records[0].timestamp}
            folder.batches.append(where | written | {"values": [v.decode() for v in values]})


def _shortened(folder: Folder) -> None:
    """Records were deleted up to the middle of a batch; the segments before that are gone."""
    topic = folder.create("shortened")
    for number in range(8):
        folder.append(topic, folder.new(*(b"kept? %d.%d" % (number, at) for at in range(3))))
    partition = topic.partition(0)
    folder.broker.delete_records(partition, 13)
    folder.commit()
    folder.broker.keep_retention()
    folder.commit()
    assert 0 < partition.segments[0].base_offset < partition.start_offset
    folder.topics[topic.name]["starts"] = [13]
    folder.records = [r for r in folder.records if r["of"] != topic.name or r["offset"] >= 13]


def _changed(folder: Folder) -> None:
    """Settings and partitions that are not those the topic was created with."""
    topic = folder.create("changed")
    folder.append(topic, folder.new(b"before"))
    config = folder.topics[topic.name]["config"] | {
        "max.message.bytes": "12345",
        "segment.bytes": "20000",
    }
    folder.broker.configure(topic, config)
    folder.broker.add_partitions(topic, 2)
    folder.commit()
    folder.topics[topic.name] |= {"config": config, "starts": [0, 0]}
    folder.append(topic, folder.new(b"after"), partition=1)


def tear(folder: Folder) -> None:
    """Put half of a batch at the end of a segment, as a power failure leaves it."""
    partition = folder.broker.topic("idempotent").partition(0)
    batch = encode(folder.new(b"never acknowledged"))
    patch(batch, 0, partition.end_offset, partition.epoch)
    torn = bytes(batch[: parse(batch).size // 2])
    path = partition.folder / f"{partition.active.base_offset:020d}.log"
    with path.open("ab") as file:
        file.write(torn)


# -- the command


def make(target: Path) -> None:
    """Write both folders and what they hold."""
    name = f"format-{FORMAT_VERSION}"
    manifests: list[str] = []
    for variant, finish in ((name, Folder.stop), (f"{name}-crashed", tear)):
        folder = Folder(target / variant)
        fill(folder)
        finish(folder)
        # Made again when it is missing, and not a few kilobytes.
        (folder.data / "reserve").unlink()
        manifests.append(folder.manifest())
    assert manifests[0] == manifests[1]
    (target / f"{name}.jsonl").write_text(manifests[0])


def main() -> int:
    """The exit code."""
    summary, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m tools.make_format_fixture", description=summary
    )
    parser.add_argument("folder", type=Path, help="where to put them")
    parser.add_argument("--replace", action="store_true", help="a version that nobody has used yet")
    args = parser.parse_args()
    found = sorted(args.folder.glob(f"format-{FORMAT_VERSION}*"))
    if found and not args.replace:
        print(f"{found[0]} is there: a version's folders are made once and kept (see --help)")
        return 1
    for path in found:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    make(args.folder)
    return 0


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # it writes a crashed folder, and says so at length
    sys.exit(main())
