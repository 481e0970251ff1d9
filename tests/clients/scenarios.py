"""What every client must be able to do on every broker.

A client's module inherits the classes that its adapter can serve and gives the fixture `client`.
The stage is set and the outcome looked at over the bare protocol, so that a scenario depends on
one client only.
"""

from __future__ import annotations

import os
import threading
import time

import pytest
from tests.clients.contract import (
    CODECS,
    MEBIBYTE,
    Administrator,
    Code,
    MakeTopic,
    NewName,
    Reader,
    Record,
    Refused,
    Stored,
    Wide,
    Writer,
    eventually,
    numbered,
)
from tests.clients.wire import EARLIEST, LATEST, Wire, build_batch

LARGE = 10_000_000
ROOM_FOR_LARGE = {"max.message.bytes": str(12 * MEBIBYTE)}
WIDE = 1000
PARTS = (None, b"", b"\x00\xff")
ODD = [Record(value, key=key) for key in PARTS for value in PARTS]
HEADERS = (("null", None), ("a", b"1"), ("a", b"2"), ("empty", b""), ("ü", b"\x00\xff"))


def content(records: list[Record]) -> list[tuple[object, ...]]:
    return [(record.key, record.value, record.headers) for record in records]


def contents(stored: list[Stored]) -> list[tuple[object, ...]]:
    return [record.content for record in stored]


@pytest.mark.compat
class WritingScenarios:
    """What every client can write."""

    @pytest.mark.parametrize("codec", CODECS)
    def test_codec(self, client: Writer, wire: Wire, topic: str, codec: str) -> None:
        records = numbered(500)
        client.write(topic, records, codec=codec)
        batches = wire.batches(topic)
        assert {batch.codec for batch in batches} == {codec}
        assert contents(wire.stored(topic)) == content(records)

    def test_idempotent(self, client: Writer, wire: Wire, topic: str) -> None:
        records = numbered(500)
        client.write(topic, records, idempotent=True)
        assert all(batch.producer_id >= 0 for batch in wire.batches(topic))
        assert contents(wire.stored(topic)) == content(records)

    @pytest.mark.parametrize("acks", ["0", "1", "all"])
    def test_acks(self, client: Writer, wire: Wire, topic: str, acks: str) -> None:
        records = numbered(100)
        client.write(topic, records, acks=acks)
        eventually(lambda: wire.offset(topic, LATEST) == len(records) or None, "all are there")
        assert contents(wire.stored(topic)) == content(records)

    def test_ten_megabytes(self, client: Writer, wire: Wire, make_topic: MakeTopic) -> None:
        topic = make_topic(configs=ROOM_FOR_LARGE)
        records = [Record(b"small"), Record(os.urandom(LARGE // 2).hex().encode()), Record(b"last")]
        client.write(topic, records)
        assert contents(wire.stored(topic)) == content(records)

    def test_too_large(self, client: Writer, wire: Wire, make_topic: MakeTopic) -> None:
        topic = make_topic(configs={"max.message.bytes": "1000"})
        with pytest.raises(Refused) as refused:
            client.write(topic, [Record(os.urandom(2500).hex().encode())])
        assert refused.value.code == Code.MESSAGE_TOO_LARGE
        client.write(topic, [Record(b"fits")])
        assert contents(wire.stored(topic)) == content([Record(b"fits")])

    def test_topic_is_made_on_first_use(
        self, client: Writer, wire: Wire, new_name: NewName
    ) -> None:
        topic = new_name()
        client.write(topic, [Record(b"first")])
        assert contents(wire.stored(topic)) == content([Record(b"first")])


@pytest.mark.compat
class RecordScenarios:
    """Everything that a record can be made of."""

    null_alone = True
    """Whether the client sends a record of neither key nor value."""
    null_header = True
    """Whether the client sends a header without a value."""

    def test_null_and_empty(self, client: Writer, wire: Wire, topic: str) -> None:
        records = ODD if self.null_alone else ODD[1:]
        client.write(topic, records)
        assert contents(wire.stored(topic)) == content(records)

    def test_headers(self, client: Writer, wire: Wire, topic: str) -> None:
        headers = HEADERS if self.null_header else HEADERS[1:]
        client.write(topic, [Record(b"with", headers=headers), Record(b"without")])
        assert [record.headers for record in wire.stored(topic)] == [headers, ()]

    def test_timestamp_of_the_client(self, client: Writer, wire: Wire, topic: str) -> None:
        now = int(time.time() * 1000)
        times = [now - 5000, now - 7000, now - 1]
        client.write(topic, [Record(b"x", timestamp=when) for when in times])
        assert [record.timestamp for record in wire.stored(topic)] == times

    def test_timestamp_of_the_log(self, client: Writer, wire: Wire, make_topic: MakeTopic) -> None:
        topic = make_topic(configs={"message.timestamp.type": "LogAppendTime"})
        before = int(time.time() * 1000)
        client.write(topic, [Record(b"x", timestamp=before - 3_600_000)] * 3)
        (stamp,) = {record.timestamp for record in wire.stored(topic)}
        assert before <= stamp <= int(time.time() * 1000)


@pytest.mark.compat
class ReadingScenarios:
    """Reading without a group: from the start, an offset, a time."""

    first_time = int(time.time() * 1000) - 3_600_000
    headers = HEADERS

    @pytest.fixture
    def thirty(self, wire: Wire, topic: str) -> str:
        """Three batches of ten records, a second apart."""
        records = numbered(30)
        for base in range(0, 30, 10):
            batch = [
                Record(record.value, record.key, timestamp=self.first_time + 1000 * number)
                for number, record in enumerate(records[base : base + 10], base)
            ]
            assert wire.write(topic, batch) == base
        return topic

    def test_from_the_start(self, client: Reader, thirty: str) -> None:
        found = client.read(thirty, 30)
        assert [record.offset for record in found] == list(range(30))
        assert contents(found) == content(numbered(30))
        assert [record.timestamp for record in found] == [
            self.first_time + 1000 * number for number in range(30)
        ]

    @pytest.mark.parametrize("start", [10, 14, 19])
    def test_from_inside_a_batch(self, client: Reader, thirty: str, start: int) -> None:
        found = client.read(thirty, 30 - start, start=start)
        assert [record.offset for record in found] == list(range(start, 30))

    @pytest.mark.parametrize("codec", CODECS)
    def test_codec(self, client: Reader, wire: Wire, topic: str, codec: str) -> None:
        records = numbered(200)
        wire.append(topic, build_batch(records, codec=codec))
        assert contents(client.read(topic, 200)) == content(records)
        assert contents(client.read(topic, 50, start=150)) == content(records[150:])

    def test_every_kind_of_record(self, client: Reader, wire: Wire, topic: str) -> None:
        records = [*ODD, Record(b"x", headers=self.headers)]
        wire.write(topic, records)
        assert contents(client.read(topic, len(records))) == content(records)

    def test_offset_of_a_time(self, client: Reader, thirty: str) -> None:
        def at(milliseconds: int) -> int | None:
            return client.offset_at(thirty, self.first_time + milliseconds)

        assert [at(-500), at(0), at(1)] == [0, 0, 1]
        assert [at(16_500), at(17_000), at(29_000)] == [17, 17, 29]
        assert at(29_001) is None

    def test_bounds(self, client: Reader, wire: Wire, topic: str) -> None:
        assert client.bounds(topic) == (0, 0)
        wire.write(topic, numbered(7))
        assert client.bounds(topic) == (0, 7)

    @pytest.mark.parametrize("start", [31, 1_000_000])
    def test_out_of_range(self, client: Reader, thirty: str, start: int) -> None:
        assert client.read_out_of_range(thirty, start) == Code.OFFSET_OUT_OF_RANGE

    def test_waits_for_what_is_still_to_come(self, client: Reader, wire: Wire, thirty: str) -> None:
        found: list[Stored] = []
        reading = threading.Thread(target=lambda: found.extend(client.read(thirty, 3, start=30)))
        reading.start()
        for value in (b"one", b"two", b"three"):
            wire.write(thirty, [Record(value)])
        reading.join()
        assert [record.value for record in found] == [b"one", b"two", b"three"]

    def test_ten_megabytes(self, client: Reader, wire: Wire, make_topic: MakeTopic) -> None:
        topic = make_topic(configs=ROOM_FOR_LARGE)
        values = [b"small", os.urandom(LARGE // 2).hex().encode(), b"last"]
        for value in values:
            wire.write(topic, [Record(value)])
        assert [record.value for record in client.read(topic, 3)] == values


@pytest.mark.compat
class WideScenarios:
    """A topic with a thousand partitions."""

    def test_thousand_partitions(self, client: Wide, wire: Wire, make_topic: MakeTopic) -> None:
        topic = make_topic(partitions=WIDE)
        client.write_everywhere(topic, {index: f"for {index}".encode() for index in range(WIDE)})
        ends = wire.list_offsets(topic, dict.fromkeys(range(WIDE), LATEST))
        assert {index: end.offset for index, end in ends.items()} == dict.fromkeys(range(WIDE), 1)
        found = client.read_everywhere(topic, WIDE)
        assert found == {index: [f"for {index}".encode()] for index in range(WIDE)}


@pytest.mark.compat
class AdminScenarios:
    """Topics, partitions, settings."""

    def test_create_list_delete(self, client: Administrator, wire: Wire, new_name: NewName) -> None:
        topic = new_name()
        client.create(topic, 3)
        assert eventually(lambda: topic in client.topics() or None, "topic is listed")
        assert client.partitions(topic) == 3
        client.delete(topic)
        eventually(lambda: topic not in client.topics() or None, "topic is gone")
        assert wire.metadata(topic).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION

    def test_created_again_it_is_empty(self, client: Administrator, wire: Wire, topic: str) -> None:
        wire.write(topic, numbered(5))
        before = wire.metadata(topic).topic_id
        client.delete(topic)
        eventually(lambda: topic not in client.topics() or None, "topic is gone")
        wire.create_topic(topic)
        assert wire.metadata(topic).topic_id != before
        assert wire.offset(topic, LATEST) == 0

    @pytest.mark.parametrize("name", ["", ".", "..", "with space", "with/slash", "x" * 250])
    def test_invalid_name(self, client: Administrator, name: str) -> None:
        with pytest.raises(Refused) as refused:
            client.create(name)
        assert refused.value.code == Code.INVALID_TOPIC_EXCEPTION

    def test_exists_already(self, client: Administrator, topic: str) -> None:
        with pytest.raises(Refused) as refused:
            client.create(topic)
        assert refused.value.code == Code.TOPIC_ALREADY_EXISTS

    @pytest.mark.parametrize(
        "config",
        [
            ("retention.ms", "soon"),
            ("cleanup.policy", "shred"),
            ("max.message.bytes", "-1"),
            ("no.such.setting", "1"),
        ],
        ids=lambda config: str(config[0]),
    )
    def test_bad_config(
        self, client: Administrator, wire: Wire, new_name: NewName, config: tuple[str, str]
    ) -> None:
        topic = new_name()
        with pytest.raises(Refused) as refused:
            client.create(topic, configs=dict([config]))
        assert refused.value.code == Code.INVALID_CONFIG
        assert wire.metadata(topic).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION

    def test_delete_unknown(self, client: Administrator, new_name: NewName) -> None:
        with pytest.raises(Refused) as refused:
            client.delete(new_name())
        assert refused.value.code == Code.UNKNOWN_TOPIC_OR_PARTITION

    def test_more_partitions(self, client: Administrator, wire: Wire, topic: str) -> None:
        client.grow(topic, 4)
        eventually(lambda: client.partitions(topic) == 4 or None, "there are four")
        eventually(
            lambda: wire.metadata(topic).partitions[-1].leader_id >= 0 or None, "and all are led"
        )
        with pytest.raises(Refused) as refused:
            client.grow(topic, 3)
        assert refused.value.code == Code.INVALID_PARTITIONS

    def test_delete_records(self, client: Administrator, wire: Wire, topic: str) -> None:
        wire.write(topic, numbered(10))
        wire.write(topic, numbered(10))
        assert client.delete_records(topic, before=14) == 14
        assert wire.offset(topic, EARLIEST) == 14
        assert wire.fetch(topic, 13).error_code == Code.OFFSET_OUT_OF_RANGE
        with pytest.raises(Refused) as refused:
            client.delete_records(topic, before=21)
        assert refused.value.code == Code.OFFSET_OUT_OF_RANGE
        assert client.delete_records(topic, before=-1) == 20

    def test_configs_are_shown_with_defaults(
        self, client: Administrator, make_topic: MakeTopic
    ) -> None:
        topic = make_topic(configs={"retention.ms": "3600000"})
        configs = client.configs(topic)
        assert configs["retention.ms"] == "3600000"
        defaults = {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "max.message.bytes": "1048588",
            "message.timestamp.type": "CreateTime",
            "min.insync.replicas": "1",
            "retention.bytes": "-1",
            "segment.bytes": "1073741824",
        }
        assert {name: configs[name] for name in defaults} == defaults

    def test_configure(self, client: Administrator, topic: str) -> None:
        client.configure(topic, {"retention.ms": "60000", "max.message.bytes": "2000000"})
        wanted = ("60000", "2000000")

        def applied() -> bool | None:
            configs = client.configs(topic)
            return (configs["retention.ms"], configs["max.message.bytes"]) == wanted or None

        eventually(applied, "settings are applied")
        with pytest.raises(Refused) as refused:
            client.configure(topic, {"retention.ms": "soon"})
        assert refused.value.code == Code.INVALID_CONFIG

    def test_cluster(self, client: Administrator, wire: Wire) -> None:
        identity, brokers = client.cluster()
        assert identity
        assert brokers == [wire.address]
