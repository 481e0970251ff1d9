"""Produce and InitProducerId in all their corners, with exact answers."""

from __future__ import annotations

import struct
import time
import uuid

import pytest
from kafka.protocol.metadata import MetadataRequest
from tests.clients.admin_requests import init_producer_id
from tests.clients.brokers import Broker
from tests.clients.contract import CODECS, Code, MakeTopic, Record, eventually, numbered
from tests.clients.wire import LATEST, NAMED_PRODUCE, Wire, build_batch, produce_request

from penstock.crc32c import crc32c

pytestmark = pytest.mark.compat

HOUR = 3_600_000


class TestProduce:
    def test_offsets_count_on(self, wire: Wire, topic: str) -> None:
        bases = [wire.write(topic, numbered(count)) for count in (1, 10, 3)]
        assert bases == [0, 1, 11]
        assert [record.offset for record in wire.stored(topic)] == list(range(14))

    def test_the_answer(self, wire: Wire, topic: str) -> None:
        answer = wire.append(topic, build_batch(numbered(2)))
        assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (0, 0, 0)
        assert answer.log_append_time_ms == -1
        assert answer.record_errors == []
        assert answer.error_message is None

    @pytest.mark.parametrize("codec", CODECS)
    def test_batches_are_kept_as_they_came(self, wire: Wire, topic: str, codec: str) -> None:
        sent = build_batch(numbered(100), codec=codec)
        wire.append(topic, sent)
        stored = wire.fetch(topic, 0).records
        # All but the base offset, the length and the leader epoch, which the broker sets.
        assert bytes(stored[16:]) == sent[16:]

    def test_several_partitions(self, wire: Wire, make_topic: MakeTopic) -> None:
        topic = make_topic(partitions=3)
        batches = {index: build_batch(numbered(index + 1)) for index in (2, 0, 1)}
        (answer,) = wire.call(produce_request(topic, batches), NAMED_PRODUCE).responses
        assert {one.index: one.error_code for one in answer.partition_responses} == dict.fromkeys(
            range(3), Code.NONE
        )
        assert [wire.offset(topic, LATEST, index) for index in range(3)] == [1, 2, 3]

    def test_one_bad_partition_does_not_stop_the_others(self, wire: Wire, topic: str) -> None:
        batches = {0: build_batch(numbered(1)), 9: build_batch(numbered(1))}
        (answer,) = wire.call(produce_request(topic, batches), NAMED_PRODUCE).responses
        codes = {one.index: one.error_code for one in answer.partition_responses}
        assert codes == {0: Code.NONE, 9: Code.UNKNOWN_TOPIC_OR_PARTITION}
        assert wire.offset(topic, LATEST) == 1

    def test_unknown_topic(self, wire: Wire, topic: str) -> None:
        batch = build_batch(numbered(1))
        unknown = wire.append(f"{topic}-not", batch)
        assert unknown.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        request = produce_request("", {0: batch}, topic_id=uuid.uuid4())
        (answer,) = wire.call(request).responses
        assert answer.partition_responses[0].error_code == Code.UNKNOWN_TOPIC_ID

    def test_unknown_partition_by_topic_id(self, wire: Wire, topic: str) -> None:
        identity = wire.metadata(topic).topic_id
        request = produce_request("", {9: build_batch(numbered(1))}, topic_id=identity)
        (answer,) = wire.call(request).responses
        assert answer.partition_responses[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION

    def test_by_topic_id(self, wire: Wire, topic: str) -> None:
        identity = wire.metadata(topic).topic_id
        request = produce_request("", {0: build_batch(numbered(3))}, topic_id=identity)
        (answer,) = wire.call(request, 13).responses
        assert answer.topic_id == identity
        assert answer.partition_responses[0].error_code == Code.NONE
        assert wire.offset(topic, LATEST) == 3

    def test_acks_zero_gets_no_answer(self, wire: Wire, topic: str) -> None:
        wire.send(produce_request(topic, {0: build_batch(numbered(3))}, acks=0), NAMED_PRODUCE)
        # The next answer belongs to the next request.
        assert wire.metadata(topic).name == topic
        eventually(lambda: wire.offset(topic, LATEST) == 3 or None, "they are there")

    def test_acks_zero_with_an_error_closes_the_connection(self, wire: Wire, topic: str) -> None:
        request = produce_request(f"{topic}-not", {0: build_batch(numbered(3))}, acks=0)
        wire.send(request, NAMED_PRODUCE)
        assert wire.closed_by_peer()

    def test_other_acks(self, wire: Wire, topic: str) -> None:
        answer = wire.append(topic, build_batch(numbered(1)), acks=2)
        assert answer.error_code == Code.INVALID_REQUIRED_ACKS
        assert wire.offset(topic, LATEST) == 0

    def test_too_large(self, wire: Wire, make_topic: MakeTopic) -> None:
        batch = build_batch([Record(b"x" * 500)])
        topic = make_topic(configs={"max.message.bytes": str(len(batch))})
        assert wire.append(topic, batch).error_code == Code.NONE
        larger = wire.append(topic, build_batch([Record(b"x" * 501)]))
        assert larger.error_code == Code.MESSAGE_TOO_LARGE

    def test_larger_than_a_segment_is_refused(self, wire: Wire, make_topic: MakeTopic) -> None:
        topic = make_topic(configs={"segment.bytes": "1048576", "max.message.bytes": "2000000"})
        answer = wire.append(topic, build_batch([Record(b"x" * 1_500_000)]))
        assert answer.error_code == Code.RECORD_LIST_TOO_LARGE

    def test_corrupt(self, wire: Wire, topic: str) -> None:
        batch = bytearray(build_batch(numbered(3)))
        batch[-1] ^= 1
        assert wire.append(topic, bytes(batch)).error_code == Code.CORRUPT_MESSAGE
        assert wire.offset(topic, LATEST) == 0

    def test_wrong_record_count(self, wire: Wire, topic: str) -> None:
        batch = bytearray(build_batch(numbered(3)))
        struct.pack_into(">i", batch, 57, 2)
        assert wire.append(topic, resealed(batch)).error_code == Code.INVALID_RECORD

    def test_two_batches_for_one_partition(self, wire: Wire, topic: str) -> None:
        both = build_batch(numbered(1)) + build_batch(numbered(1))
        assert wire.append(topic, both).error_code == Code.INVALID_RECORD

    def test_nobody_writes_control_batches(self, wire: Wire, topic: str) -> None:
        batch = bytearray(build_batch(numbered(1)))
        struct.pack_into(">h", batch, 21, 0x20)
        assert wire.append(topic, resealed(batch)).error_code == Code.INVALID_RECORD

    def test_from_the_far_future(self, wire: Wire, topic: str) -> None:
        now = int(time.time() * 1000)
        future = wire.append(topic, build_batch([Record(b"x", timestamp=now + 2 * HOUR)]))
        assert future.error_code == Code.INVALID_TIMESTAMP
        soon = wire.append(topic, build_batch([Record(b"x", timestamp=now + HOUR // 2)]))
        assert soon.error_code == Code.NONE

    def test_no_key_on_a_compacted_topic(self, wire: Wire, make_topic: MakeTopic) -> None:
        topic = make_topic(configs={"cleanup.policy": "compact"})
        records = [Record(b"x", b"k"), Record(b"x"), Record(b"x", b"k")]
        answer = wire.append(topic, build_batch(records))
        assert answer.error_code == Code.INVALID_RECORD
        assert [error.batch_index for error in answer.record_errors] == [1]
        assert wire.append(topic, build_batch(records[:1])).error_code == Code.NONE

    def test_topic_that_wants_its_own_codec(self, wire: Wire, make_topic: MakeTopic) -> None:
        topic = make_topic(configs={"compression.type": "gzip"})
        wire.append(topic, build_batch(numbered(50), codec="lz4"))
        wire.append(topic, build_batch(numbered(50)))
        assert [batch.codec for batch in wire.batches(topic)] == ["gzip", "gzip"]
        assert [record.offset for record in wire.stored(topic)] == list(range(100))

    def test_pipelined(self, wire: Wire, topic: str) -> None:
        """A hundred requests on their way at once are answered and stored in their order."""
        requests = [
            produce_request(topic, {0: build_batch([Record(str(n).encode())])}) for n in range(100)
        ]
        for request in requests:
            wire.send(request, NAMED_PRODUCE)
        bases = [
            wire.receive(request).responses[0].partition_responses[0].base_offset
            for request in requests
        ]
        assert bases == list(range(100))
        assert [record.value for record in wire.stored(topic)] == [
            str(n).encode() for n in range(100)
        ]


class TestIdempotence:
    @pytest.fixture
    def producer(self, wire: Wire) -> int:
        def ready() -> int | None:
            answer = wire.call(init_producer_id())
            return answer.producer_id if answer.error_code == Code.NONE else None

        return eventually(ready, "a producer id")

    def test_ids_differ(self, wire: Wire, producer: int) -> None:
        answer = wire.call(init_producer_id())
        assert answer.error_code == Code.NONE
        assert answer.producer_epoch == 0
        assert answer.producer_id > producer >= 0

    def test_a_repeated_batch_is_stored_once(self, wire: Wire, topic: str, producer: int) -> None:
        batches = [
            build_batch(numbered(10), producer=(producer, 0, 10 * number)) for number in range(5)
        ]
        assert [wire.append(topic, batch).base_offset for batch in batches] == [0, 10, 20, 30, 40]
        for number, batch in enumerate(batches):  # all five are remembered
            again = wire.append(topic, batch)
            assert (again.error_code, again.base_offset) == (Code.NONE, 10 * number)
        assert wire.offset(topic, LATEST) == 50

    def test_a_gap_is_refused(self, wire: Wire, topic: str, producer: int) -> None:
        wire.append(topic, build_batch(numbered(10), producer=(producer, 0, 0)))
        gap = wire.append(topic, build_batch(numbered(10), producer=(producer, 0, 11)))
        assert gap.error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
        next_one = wire.append(topic, build_batch(numbered(10), producer=(producer, 0, 10)))
        assert (next_one.error_code, next_one.base_offset) == (Code.NONE, 10)

    def test_older_than_the_window(self, wire: Wire, topic: str, producer: int) -> None:
        for number in range(6):
            wire.append(topic, build_batch(numbered(1), producer=(producer, 0, number)))
        first = wire.append(topic, build_batch(numbered(1), producer=(producer, 0, 0)))
        assert first.error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert wire.offset(topic, LATEST) == 6

    def test_older_epoch(self, wire: Wire, topic: str, producer: int) -> None:
        wire.append(topic, build_batch(numbered(1), producer=(producer, 3, 0)))
        older = wire.append(topic, build_batch(numbered(1), producer=(producer, 2, 1)))
        assert older.error_code == Code.INVALID_PRODUCER_EPOCH
        newer = wire.append(topic, build_batch(numbered(1), producer=(producer, 4, 0)))
        assert newer.error_code == Code.NONE
        crooked = wire.append(topic, build_batch(numbered(1), producer=(producer, 5, 7)))
        assert crooked.error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_first_batch_may_start_anywhere(self, wire: Wire, topic: str, producer: int) -> None:
        """The broker may have forgotten the producer, so what it does not know it accepts."""
        answer = wire.append(topic, build_batch(numbered(1), producer=(producer, 0, 1234)))
        assert answer.error_code == Code.NONE

    def test_sequence_wraps_around(self, wire: Wire, topic: str, producer: int) -> None:
        last = (1 << 31) - 1
        wire.append(topic, build_batch(numbered(3), producer=(producer, 0, last - 2)))
        wrapped = wire.append(topic, build_batch(numbered(3), producer=(producer, 0, 0)))
        assert (wrapped.error_code, wrapped.base_offset) == (Code.NONE, 3)

    def test_each_partition_counts_for_itself(
        self, wire: Wire, make_topic: MakeTopic, producer: int
    ) -> None:
        topic = make_topic(partitions=2)
        for partition in range(2):
            batch = build_batch(numbered(2), producer=(producer, 0, 0))
            assert wire.append(topic, batch, partition=partition).base_offset == 0

    def test_pipelined_with_repeats(
        self, broker: Broker, wire: Wire, topic: str, producer: int
    ) -> None:
        """What a client does after a broken connection: send again what was on its way."""
        batches = [build_batch(numbered(2), producer=(producer, 0, 2 * n)) for n in range(5)]
        for batch in batches:
            wire.send(produce_request(topic, {0: batch}), NAMED_PRODUCE)
        with broker.wire() as other:
            requests = [produce_request(topic, {0: batch}) for batch in batches]
            for request in requests:
                other.send(request, NAMED_PRODUCE)
            answers = [other.receive(request).responses[0] for request in requests]
            parts = [answer.partition_responses[0] for answer in answers]
            known = {Code.NONE, Code.OUT_OF_ORDER_SEQUENCE_NUMBER}
            assert {part.error_code for part in parts} <= known
        eventually(lambda: wire_end(broker, topic) == 10 or None, "each is stored once")


def wire_end(broker: Broker, topic: str) -> int:
    with broker.wire() as wire:
        return wire.offset(topic, LATEST)


def resealed(batch: bytearray) -> bytes:
    """The batch with the checksum that fits it."""
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


class TestMetadata:
    def test_auto_create(self, wire: Wire, topic: str) -> None:
        name = f"{topic}-auto"
        assert wire.metadata(name).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        wire.metadata(name, create=True)
        made = eventually(
            lambda: found if not (found := wire.metadata(name)).error_code else None, "it is made"
        )
        assert len(made.partitions) == 1
        assert made.topic_id != uuid.UUID(int=0)

    @pytest.mark.parametrize("name", ["with space", "..", "x" * 250])
    def test_bad_name_is_not_created(self, wire: Wire, name: str) -> None:
        answer = wire.metadata(name, create=True)
        assert answer.error_code == Code.INVALID_TOPIC_EXCEPTION

    def test_all_or_none(self, wire: Wire, topic: str) -> None:
        everything = wire.call(MetadataRequest(topics=None, allow_auto_topic_creation=True))
        assert topic in {found.name for found in everything.topics}
        nothing = wire.call(MetadataRequest(topics=[], allow_auto_topic_creation=True))
        assert list(nothing.topics) == []
        assert [f"{one.host}:{one.port}" for one in nothing.brokers] == [wire.address]
        assert nothing.controller_id == nothing.brokers[0].node_id
        assert nothing.cluster_id == everything.cluster_id

    def test_by_id(self, wire: Wire, topic: str) -> None:
        identity = wire.metadata(topic).topic_id
        wanted = MetadataRequest.MetadataRequestTopic
        request = MetadataRequest(
            topics=[wanted(topic_id=identity, name=None), wanted(topic_id=uuid.uuid4(), name=None)],
            allow_auto_topic_creation=False,
        )
        answers = {found.name: found.error_code for found in wire.call(request).topics}
        assert answers == {topic: Code.NONE, None: Code.UNKNOWN_TOPIC_ID}
