"""The client side, with kafka-python replaced by a stand-in that can be made to misbehave."""

from __future__ import annotations

import threading
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.client import connection, consume, produce, refusals
from penstock.client.connection import library
from penstock.client.consume import Gap, Origin, Start, TopicReader
from penstock.client.produce import OutgoingRecord, RecordSender
from penstock.client.refusals import Refusals
from penstock.client.topics import did_you_mean
from penstock.crc32c import crc32c
from penstock.errors import (
    ConflictError,
    NotFoundError,
    OfflineError,
    PenstockError,
    StorageError,
    UnavailableError,
    UsageError,
)

errors = library("kafka.errors")
Future = library("kafka.future").Future

# -- errors and codecs


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (errors.KafkaTimeoutError("too late."), UnavailableError, "do it: too late; check that"),
        (errors.UnknownTopicOrPartitionError(), NotFoundError, "do it: "),
        (errors.TopicAlreadyExistsError("It exists."), ConflictError, "do it: It exists"),
        (errors.InvalidConfigurationError(None), UsageError, "do it: "),
        (errors.KafkaStorageError(), StorageError, "do it: Disk error when trying to access log "),
        (errors.CorruptRecordError("a\nb"), PenstockError, "do it: a b"),
        (errors.IllegalStateError(), PenstockError, "do it: IllegalStateError"),
    ],
)
def test_errors_are_translated(error: Exception, kind: type[PenstockError], text: str) -> None:
    with pytest.raises(PenstockError) as caught, connection.translated("do it"):
        raise error
    assert type(caught.value) is kind
    assert str(caught.value).startswith(text)
    assert "None" not in str(caught.value)
    assert caught.value.__cause__ is error


def test_what_a_broker_says_of_its_disk_is_all_that_is_said() -> None:
    silent = connection.error_of_code("do it", 56, None)
    assert silent.remedy == "check whether the broker's disk is full, and what its log says"
    assert str(connection.error_of_code("do it", 56, "full; make room")) == "do it: full; make room"


def test_error_of_an_unknown_code_keeps_the_code() -> None:
    assert type(connection.error_of_code("do it", 32000, "odd")) is PenstockError


def test_bootstrap_is_a_list() -> None:
    found = connection.parse_bootstrap("a:1, [::1]:2,b:3")
    assert [str(address) for address in found] == ["a:1", "[::1]:2", "b:3"]


def test_did_you_mean() -> None:
    assert did_you_mean(["odrers"], ["orders", "clicks"]) == "did you mean orders?"
    assert did_you_mean(["x"], ["orders"]) == ""


@pytest.mark.parametrize("name", ["snappy", "lz4", "zstd"])
def test_codecs_are_ours(name: str) -> None:
    codec = library("kafka.codec")
    assert codec.has_snappy() and codec.has_lz4() and codec.has_zstd()
    default_records = library("kafka.record.default_records")
    data = b"0123456789" * 10_000
    packed = getattr(default_records, f"{name}_encode")(data)
    assert len(packed) < len(data)
    assert getattr(default_records, f"{name}_decode")(packed) == data


def test_the_checksum_is_ours() -> None:
    """Without another package kafka-python would make it in Python, a quarter of a second a megabyte."""
    assert library("kafka.record.default_records").calc_crc32c is crc32c


# -- sending


@dataclass
class Producer:
    """Keeps what it is given until it is told to acknowledge or to fail it."""

    answer: Callable[[int], Exception | None] | None = None
    sent: list[dict[str, Any]] = field(default_factory=list)
    futures: list[Any] = field(default_factory=list)

    def send(self, topic: str, **record: Any) -> Any:
        self.sent.append({"topic": topic} | record)
        future = Future()
        self.futures.append(future)
        if self.answer:
            self.settle(len(self.futures) - 1, self.answer(len(self.futures) - 1))
        return future

    def settle(self, index: int, error: Exception | None = None) -> None:
        if error:
            self.futures[index].failure(error)
        else:
            self.futures[index].success(None)

    def close(self, timeout: float) -> None:
        pass


@pytest.fixture
def make_sender(monkeypatch: pytest.MonkeyPatch) -> Callable[[Producer], RecordSender]:
    def make(producer: Producer) -> RecordSender:
        monkeypatch.setattr(produce, "topic_partitions", lambda *_: [0, 1])
        monkeypatch.setattr(produce, "out_of_service", lambda *_: None)
        monkeypatch.setattr(produce, "connect", lambda *_, **__: producer)
        return RecordSender("x:1", "orders", delivery_seconds=1.0)

    return make


Make = Callable[[Producer], RecordSender]


def test_sender_counts_what_is_acknowledged(make_sender: Make) -> None:
    producer = Producer(answer=lambda _: None)
    with make_sender(producer) as sender:
        sender.send(OutgoingRecord(b"value", b"key", (("h", b"1"),), 1, 5))
        sender.send(OutgoingRecord(None, b"key"))
        sender.finish()
    assert (sender.sent, sender.acknowledged, sender.acknowledged_bytes) == (2, 2, 13)
    assert producer.sent[0] == {
        "topic": "orders",
        "value": b"value",
        "key": b"key",
        "headers": [("h", b"1")],
        "partition": 1,
        "timestamp_ms": 5,
    }


def test_sender_stops_at_the_first_failure(make_sender: Make) -> None:
    refuse = errors.KafkaTimeoutError("expired")
    producer = Producer(answer=lambda index: refuse if index == 2 else None)
    with make_sender(producer) as sender:
        for _ in range(3):
            sender.send(OutgoingRecord(b"x"))
        with pytest.raises(UnavailableError, match="cannot produce to orders: expired"):
            sender.send(OutgoingRecord(b"x"))
        with pytest.raises(UnavailableError):
            sender.finish()
    assert (sender.sent, sender.acknowledged) == (3, 2)


def test_record_that_is_too_large_says_how_to_allow_it(make_sender: Make) -> None:
    producer = Producer(answer=lambda _: errors.MessageSizeTooLargeError())
    with make_sender(producer) as sender:
        sender.send(OutgoingRecord(b"x"))
        with pytest.raises(UsageError, match=r"configure orders --set max\.message\.bytes=BYTES"):
            sender.finish()


def test_partition_that_does_not_exist(make_sender: Make) -> None:
    with make_sender(Producer()) as sender, pytest.raises(NotFoundError, match="from 0 to 1"):
        sender.send(OutgoingRecord(b"x", partition=2))


def test_record_that_never_settles(make_sender: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "SETTLE_SECONDS", -0.99)
    with make_sender(Producer()) as sender:
        sender.send(OutgoingRecord(b"x"))
        with pytest.raises(UnavailableError, match="1 records were not acknowledged"):
            sender.finish()


@pytest.mark.parametrize(
    ("limit", "value"), [("UNACKNOWLEDGED_RECORDS_MAX", 2), ("UNACKNOWLEDGED_BYTES_MAX", 20)]
)
def test_sender_waits_while_too_much_is_unacknowledged(
    limit: str, value: int, make_sender: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, limit, value)
    producer = Producer()
    with make_sender(producer) as sender:
        sender.send(OutgoingRecord(b"0123456789"))
        sender.send(OutgoingRecord(b"0123456789"))
        third = threading.Thread(target=sender.send, args=[OutgoingRecord(b"0123456789")])
        third.start()
        third.join(0.05)
        assert third.is_alive() and len(producer.sent) == 2
        producer.settle(0)
        third.join(5)
        assert not third.is_alive() and len(producer.sent) == 3
        producer.settle(1)
        producer.settle(2)
        sender.finish()
    assert sender.acknowledged == 3


def test_record_larger_than_the_limit_goes_alone(
    make_sender: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "UNACKNOWLEDGED_BYTES_MAX", 5)
    with make_sender(Producer(answer=lambda _: None)) as sender:
        sender.send(OutgoingRecord(b"0123456789"))
        sender.finish()
    assert sender.acknowledged == 1


# -- refusals


class Network:
    """Stands for the network half of a producer: what is sent is answered when the test says so."""

    def __init__(self) -> None:
        self.last = Future()

    def send(self, _node: int, _request: Any, **_options: Any) -> Any:
        self.last = Future()
        return self.last


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> tuple[Network, Refusals]:
    network, found = Network(), Refusals()
    monkeypatch.setattr(refusals, "without_auto_create", lambda **_: network)
    assert found.client() is network
    return network, found


def answer_produce(network: Network, **codes: int) -> None:
    """Answer for partitions given as p0, p1."""
    response = library("kafka.protocol.producer").ProduceResponse
    topic = response.TopicProduceResponse
    partition = topic.PartitionProduceResponse
    network.send(0, library("kafka.protocol.producer").ProduceRequest(), wakeup=False)
    parts = [
        partition(index=int(name[1:]), error_code=code, error_message="full" if code else None)
        for name, code in codes.items()
    ]
    network.last.success(response(responses=[topic(name="t", partition_responses=parts)]))


def test_a_refusal_stands_until_its_partition_is_taken(watched: tuple[Network, Refusals]) -> None:
    network, found = watched
    answer_produce(network, p0=0, p1=56)
    answer_produce(network, p0=0)
    refusal = found.first()
    assert refusal is not None
    error = refusal.error("do it")
    assert type(error) is StorageError
    assert str(error) == "do it: partition 1 was refused with KAFKA_STORAGE_ERROR: full"
    answer_produce(network, p1=0)
    assert found.first() is None


def test_a_refusal_is_no_reason_once_the_broker_is_gone(watched: tuple[Network, Refusals]) -> None:
    network, found = watched
    answer_produce(network, p0=56)
    network.send(0, library("kafka.protocol.producer").ProduceRequest())
    network.last.failure(errors.KafkaConnectionError())
    assert found.first() is None


def test_a_producer_that_gets_no_id_is_refused_too(watched: tuple[Network, Refusals]) -> None:
    network, found = watched
    messages = library("kafka.protocol.producer")
    network.send(0, messages.InitProducerIdRequest())
    network.last.success(messages.InitProducerIdResponse(error_code=14))
    refusal = found.first()
    assert refusal is not None
    assert "the producer was refused with " in str(refusal.error("do it"))


def test_other_answers_are_not_looked_at(watched: tuple[Network, Refusals]) -> None:
    network, found = watched
    network.send(0, library("kafka.protocol.metadata").MetadataRequest())
    network.last.success(object())
    assert found.first() is None


def test_a_topic_deleted_meanwhile_is_the_reason(
    make_sender: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = NotFoundError("cannot produce to orders", "there is no topic orders")
    with make_sender(Producer(answer=lambda _: errors.KafkaTimeoutError("expired"))) as sender:
        monkeypatch.setattr(produce, "out_of_service", lambda *_: gone)
        sender.send(OutgoingRecord(b"x"))
        with pytest.raises(NotFoundError):
            sender.finish()


# -- reading

Record = namedtuple("Record", "partition offset")
Found = namedtuple("Found", "offset")
Key = namedtuple("Key", "topic partition")


@dataclass
class Consumer:
    """Partitions as pairs of first and next offset; gives one record per partition and poll."""

    logs: dict[int, list[int]]
    before_poll: Callable[[], None] = lambda: None
    positions: dict[Any, int] = field(default_factory=dict)
    paused: set[Any] = field(default_factory=set)
    assigned: list[Any] = field(default_factory=list)

    def assign(self, keys: list[Any]) -> None:
        self.assigned = keys

    def assignment(self) -> set[Any]:
        return set(self.assigned)

    def partitions_for_topic(self, _topic: str) -> set[int]:
        return set(self.logs)

    def beginning_offsets(self, keys: list[Any]) -> dict[Any, int]:
        return {key: self.logs[key.partition][0] for key in keys}

    def end_offsets(self, keys: list[Any]) -> dict[Any, int]:
        return {key: self.logs[key.partition][1] for key in keys}

    def offsets_for_times(self, times: dict[Any, int]) -> dict[Any, Any]:
        # In these logs the time of a record is ten times its offset.
        ends = self.end_offsets(list(times))
        return {key: Found(ms // 10) if ms // 10 < ends[key] else None for key, ms in times.items()}

    def seek(self, key: Any, offset: int) -> None:
        self.positions[key] = offset

    def position(self, key: Any) -> int:
        return self.positions[key]

    def pause(self, *keys: Any) -> None:
        self.paused.update(keys)

    def poll(self, timeout_ms: int) -> dict[Any, list[Any]]:
        self.before_poll()
        found = {}
        for key in self.assigned:
            begin, end = self.logs[key.partition]
            position = self.positions[key]
            if key in self.paused or position == end:
                continue
            if not begin <= position < end:
                raise errors.OffsetOutOfRangeError({key: position})
            found[key] = [Record(key.partition, position)]
            self.positions[key] += 1
        return found

    def close(self, autocommit: bool) -> None:
        pass


class Reading:
    """A TopicReader on a stand-in, and everything it said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, logs: dict[int, list[int]]) -> None:
        self.consumer = Consumer(logs)
        self.notices: list[str] = []
        self.reader: TopicReader
        monkeypatch.setattr(consume, "topic_partitions", lambda *_: self.existing())
        monkeypatch.setattr(consume, "out_of_service", lambda *_: None)
        monkeypatch.setattr(consume, "connect", lambda *_, **__: self.consumer)

    def existing(self) -> list[int]:
        return sorted(self.consumer.logs)

    def open(
        self, start: Start, partitions: tuple[int, ...] = (), follow: bool = False
    ) -> TopicReader:
        self.reader = TopicReader(
            "x:1",
            "orders",
            start=start,
            partitions=partitions,
            follow=follow,
            notice=self.notices.append,
        )
        return self.reader

    def read(self, *args: Any, **options: Any) -> list[tuple[int, int]]:
        with self.open(*args, **options) as reader:
            return [(one.partition, one.offset) for batch in reader.batches() for one in batch]


@pytest.mark.parametrize(
    ("start", "offsets"),
    [
        (Start(Origin.START), [3, 4, 5]),
        (Start(Origin.END), []),
        (Start(Origin.OFFSET, 4), [4, 5]),
        (Start(Origin.OFFSET, 6), []),
        (Start(Origin.TAIL, 1), [5]),
        (Start(Origin.TAIL, 100), [3, 4, 5]),
        (Start(Origin.TIME, 41), [4, 5]),
        (Start(Origin.TIME, 1000), []),
    ],
)
def test_reading_starts_where_it_should(
    start: Start, offsets: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = Reading(monkeypatch, {0: [3, 6]})
    assert reading.read(start) == [(0, offset) for offset in offsets]
    assert reading.notices == [] and reading.reader.gaps == []


def test_reading_stops_at_the_end_it_saw_first(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch, {0: [0, 2], 1: [0, 0]})

    def grow() -> None:
        for log in reading.consumer.logs.values():
            log[1] += 5

    reading.consumer.before_poll = grow
    assert reading.read(Start(Origin.START)) == [(0, 0), (0, 1)]


def test_only_the_partitions_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch, {0: [0, 1], 1: [0, 1], 2: [0, 1]})
    assert reading.read(Start(Origin.START), partitions=(2, 0, 2)) == [(0, 0), (2, 0)]
    with pytest.raises(NotFoundError, match="it has no partition 3; use one from 0 to 2"):
        reading.open(Start(Origin.START), partitions=(3,))


def test_offsets_before_the_start_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch, {0: [3, 5]})
    assert reading.read(Start(Origin.OFFSET, 1)) == [(0, 3), (0, 4)]
    assert reading.reader.gaps == [Gap("orders", 0, 1, 2)]
    assert reading.notices == [
        "offsets 1 to 2 of orders partition 0 are gone: 2 records deleted by retention or on request; "
        "reading goes on at offset 3"
    ]


def test_offset_after_the_end_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch, {0: [3, 5]})
    assert reading.read(Start(Origin.OFFSET, 9)) == []
    assert reading.notices == ["orders partition 0 has no offset 9 yet: it ends at 5"]
    assert reading.reader.gaps == []


def test_falling_off_while_reading_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch, {0: [0, 6]})
    found = []
    with reading.open(Start(Origin.START)) as reader:
        for batch in reader.batches():
            found += [one.offset for one in batch]
            reading.consumer.logs[0][0] = 4
    assert found == [0, 4, 5]
    assert reader.gaps == [Gap("orders", 0, 1, 3)]


def test_everything_deleted_while_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch, {0: [0, 6]})
    with reading.open(Start(Origin.START)) as reader:
        for _ in reader.batches():
            reading.consumer.logs[0][:] = [6, 6]
    assert reader.gaps == [Gap("orders", 0, 1, 5)]


def test_log_that_became_shorter_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch, {0: [0, 6]})
    with (
        pytest.raises(PenstockError, match="partition 0 ends at 1, but 2 was already reached"),
        reading.open(Start(Origin.OFFSET, 1)) as reader,
    ):
        for _ in reader.batches():
            reading.consumer.logs[0][1] = 1


def test_follower_reads_new_partitions_from_their_start(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch, {0: [0, 0]})
    with reading.open(Start(Origin.END), follow=True) as reader:
        reading.consumer.logs[0][1] = 1
        batches = reader.batches()
        assert [one.partition for one in next(batches)] == [0]
        reading.consumer.logs[1] = [0, 1]
        assert [one.partition for one in next(batches)] == [1]
    assert reading.notices == ["orders has a new partition 1"]


def test_follower_of_chosen_partitions_keeps_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch, {0: [0, 1], 1: [0, 1]})
    with reading.open(Start(Origin.START), (0,), follow=True) as reader:
        next(reader.batches())
        assert {key.partition for key in reading.consumer.assigned} == {0}


def test_silence_is_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """Following, a cluster that is away is waited for, and a deleted topic is the end."""
    monkeypatch.setattr(consume, "SILENCE_SECONDS", -1.0)
    reading = Reading(monkeypatch, {0: [0, 0]})
    looks = iter([UnavailableError("ask", "refused"), UnavailableError("ask", "refused"), None])

    def look() -> list[int]:
        error = next(looks, NotFoundError("cannot consume orders", "there is no topic orders"))
        if error:
            raise error
        return [0]

    with reading.open(Start(Origin.END), follow=True) as reader:
        monkeypatch.setattr(reading, "existing", look)
        with pytest.raises(NotFoundError):
            next(reader.batches())
    assert reading.notices == ["ask: refused; waiting for it", "x:1 answers again"]


def test_reading_to_an_end_does_not_wait_for_a_cluster_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading = Reading(monkeypatch, {0: [0, 1]})
    monkeypatch.setattr(reading.consumer, "poll", lambda timeout_ms: {})
    monkeypatch.setattr(consume, "STALL_SECONDS_MAX", -1.0)
    with (
        pytest.raises(UnavailableError, match="nothing of partition 0 from offset 0 on came"),
        reading.open(Start(Origin.START)) as reader,
    ):
        next(reader.batches())


def test_reading_a_partition_that_nobody_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch, {0: [0, 1]})

    def late(_keys: Any) -> Any:
        raise errors.KafkaTimeoutError("failed to get offsets")

    monkeypatch.setattr(reading.consumer, "end_offsets", late)
    with pytest.raises(UnavailableError, match="failed to get offsets"):
        reading.open(Start(Origin.START))
    offline = OfflineError("cannot consume orders", "partition 0 is out of service")
    monkeypatch.setattr(consume, "out_of_service", lambda *_: offline)
    with pytest.raises(OfflineError):
        reading.open(Start(Origin.START))


def test_reading_a_topic_that_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client library may be the first to know, and says nothing but the topic's name."""
    reading = Reading(monkeypatch, {0: [0, 1]})

    def poll(timeout_ms: int) -> Any:
        raise errors.UnknownTopicOrPartitionError("orders")

    with reading.open(Start(Origin.START)) as reader:
        monkeypatch.setattr(reading.consumer, "poll", poll)
        with pytest.raises(
            NotFoundError, match="there is no topic orders any more; if it was created anew"
        ):
            next(reader.batches())
