"""ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.consumer import ListOffsetsRequest
from tests.clients.admin_requests import delete_records, offset_for_epoch
from tests.unit.kafka.exchange import NOW, Exchange, answer, versions

from penstock.errors import DamagedLogError
from penstock.kafka.errors import Code
from penstock.record.batch import TRANSACTIONAL_FLAG, parse
from penstock.record.encode import NewRecord, encode

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING = range(-1, -7, -1)


def request(
    timestamp: int, *, name: str = "a", partition: int = 0, epoch: int = -1, committed: bool = False
) -> Any:
    topic = ListOffsetsRequest.ListOffsetsTopic
    wanted = topic.ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp
    )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[topic(name=name, partitions=[wanted])],
    )


def found(response: Any) -> Any:
    (topic,) = response.topics
    (result,) = topic.partitions
    return result


@pytest.fixture
def filled(exchange: Exchange) -> Exchange:
    """Ten records at NOW, NOW+10, ..., but the eighth is the newest; the first two are deleted."""
    topic = exchange.topic("a")
    times = [NOW + 10 * number for number in range(10)]
    times[7] = NOW + 1000
    for number in range(0, 10, 2):
        exchange.append(topic, *times[number : number + 2])
    exchange.send_highest(delete_records("a", 2))
    return exchange


class TestListOffsets:
    @pytest.mark.parametrize("version", versions(2))
    @pytest.mark.parametrize(("timestamp", "offset"), [(LATEST, 10), (EARLIEST, 2)])
    def test_the_ends(self, filled: Exchange, version: int, timestamp: int, offset: int) -> None:
        result = found(filled.send(request(timestamp), version))
        assert (result.error_code, result.offset, result.timestamp) == (Code.NONE, offset, -1)
        if version >= 4:
            assert result.leader_epoch == 0

    @pytest.mark.parametrize("version", versions(2))
    @pytest.mark.parametrize(
        ("timestamp", "offset", "at"),
        [
            (0, 2, NOW + 20),
            (NOW + 20, 2, NOW + 20),
            (NOW + 21, 3, NOW + 30),
            (NOW + 61, 7, NOW + 1000),
            (NOW + 1000, 7, NOW + 1000),
            (NOW + 1001, -1, -1),
        ],
    )
    def test_by_time(
        self, filled: Exchange, version: int, timestamp: int, offset: int, at: int
    ) -> None:
        result = found(filled.send(request(timestamp), version))
        assert (result.error_code, result.offset, result.timestamp) == (Code.NONE, offset, at)
        if version >= 4:
            assert result.leader_epoch == (-1 if offset == -1 else 0)

    @pytest.mark.parametrize("version", versions(2))
    @pytest.mark.parametrize(
        ("timestamp", "since", "offset"),
        [
            (MAX_TIMESTAMP, 7, 7),
            (EARLIEST_LOCAL, 8, 2),
            (LATEST_TIERED, 9, -1),
            (PENDING, 11, -1),
            (-7, 99, -1),
        ],
    )
    def test_by_meaning(
        self, filled: Exchange, version: int, timestamp: int, since: int, offset: int
    ) -> None:
        result = found(filled.send(request(timestamp), version))
        if version < since:
            assert (result.error_code, result.offset) == (Code.UNSUPPORTED_VERSION, -1)
        else:
            assert (result.error_code, result.offset) == (Code.NONE, offset)
            at = NOW + 1000 if timestamp == MAX_TIMESTAMP else -1
            assert result.timestamp == at

    def test_an_empty_partition(self, exchange: Exchange) -> None:
        exchange.topic("a")
        for timestamp, offset in ((LATEST, 0), (EARLIEST, 0), (MAX_TIMESTAMP, -1), (0, -1)):
            result = found(exchange.send_highest(request(timestamp)))
            assert (result.error_code, result.offset) == (Code.NONE, offset)

    def test_only_what_is_durable(self, filled: Exchange) -> None:
        topic = filled.broker.topic("a")
        filled.broker.appender.append(
            topic, topic.partition(0), encode([NewRecord(b"", None, NOW + 2000)])
        )
        asked = {LATEST: 10, MAX_TIMESTAMP: 7, NOW + 2000: -1}
        for timestamp, offset in asked.items():
            wanted = request(timestamp)
            slot = filled.begin(wanted, 11)
            assert slot.data is not None
            response = wanted.header.get_response_class().decode(
                slot.data, header=True, framed=True
            )
            assert found(response).offset == offset

    def test_only_what_is_decided(self, filled: Exchange) -> None:
        times = {LATEST: 10, MAX_TIMESTAMP: -1, NOW + 2000: -1, NOW + 30: 3}
        partition = filled.broker.topic("a").partition(0)
        fields = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
        batch = encode([NewRecord(b"", None, NOW + 2000)], attributes=TRANSACTIONAL_FLAG, **fields)
        partition.append(parse(batch), batch)
        filled.broker.commit.appended(partition)
        filled.drain()
        for timestamp, offset in times.items():
            result = found(filled.send(request(timestamp, committed=True), 11))
            assert (result.error_code, result.offset) == (Code.NONE, offset)
        assert found(filled.send(request(MAX_TIMESTAMP), 11)).offset == 10

    @pytest.mark.parametrize("version", range(4, 12))
    @pytest.mark.parametrize(
        ("epoch", "code"),
        [
            (-1, Code.NONE),
            (0, Code.FENCED_LEADER_EPOCH),
            (1, Code.NONE),
            (2, Code.UNKNOWN_LEADER_EPOCH),
        ],
    )
    def test_leader_epochs(self, filled: Exchange, version: int, epoch: int, code: Code) -> None:
        filled.open()
        result = found(filled.send(request(LATEST, epoch=epoch), version))
        assert result.error_code == code
        assert result.leader_epoch == (1 if code == Code.NONE else -1)

    @pytest.mark.parametrize("version", versions(2))
    @pytest.mark.parametrize(("name", "partition"), [("a", 1), ("a", -1), ("b", 0)])
    def test_unknown(self, filled: Exchange, version: int, name: str, partition: int) -> None:
        result = found(filled.send(request(LATEST, name=name, partition=partition), version))
        assert (result.partition_index, result.offset) == (partition, -1)
        assert result.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION

    def test_damaged(self, filled: Exchange) -> None:
        filled.broker.topic("a").partitions[0] = DamagedLogError("open", "it is damaged")
        result = found(filled.send_highest(request(LATEST)))
        assert result.error_code == Code.KAFKA_STORAGE_ERROR


class TestColdDisk:
    """What is not cached is read on a thread, and the loop does not wait for it."""

    @pytest.mark.parametrize(("timestamp", "offset"), [(NOW + 35, 4), (MAX_TIMESTAMP, 7)])
    def test_a_search_goes_on_when_it_has_been_read(
        self, filled: Exchange, timestamp: int, offset: int
    ) -> None:
        reads: list[tuple[Callable[[], None], Callable[[], None]]] = []
        filled.context.run_cold = lambda job, done: reads.append((job, done))
        filled.files.cold = True
        asked = request(timestamp)
        slot = filled.begin(asked, 7)
        filled.drain()
        assert slot.data is None
        assert found(filled.send(request(LATEST), 7)).offset == 10, "others are answered"
        ((job, done),) = reads
        job()
        filled.files.cold = False
        done()
        filled.drain()
        assert found(answer(asked, 7, slot)).offset == offset
        assert len(reads) == 1

    def test_a_disk_that_stays_cold_is_waited_for(self, filled: Exchange) -> None:
        filled.files.cold = True
        assert found(filled.send(request(NOW + 35), 7)).offset == 4

    def test_a_topic_may_go_meanwhile(self, filled: Exchange) -> None:
        reads: list[Callable[[], None]] = []
        filled.context.run_cold = lambda job, done: reads.append(done)
        filled.files.cold = True
        slot = filled.begin(request(NOW + 35), 7)
        filled.broker.delete_topic(filled.broker.topic("a"))
        filled.drain()
        filled.files.cold = False
        reads.pop()()
        filled.drain()
        assert slot.data is not None
        assert slot.failed is None

    def test_the_ends_need_no_disk(self, filled: Exchange) -> None:
        filled.files.cold = True
        filled.context.run_cold = lambda job, done: pytest.fail("nothing is to be read")
        assert found(filled.send(request(LATEST), 7)).offset == 10
        assert found(filled.send(request(EARLIEST), 7)).offset == 2


class TestOffsetForLeaderEpoch:
    @pytest.mark.parametrize("version", versions(23))
    @pytest.mark.parametrize("current", [-1, 0])
    def test_the_only_epoch(self, filled: Exchange, version: int, current: int) -> None:
        result = found(filled.send(offset_for_epoch("a", 0, current=current), version))
        assert (result.error_code, result.leader_epoch) == (Code.NONE, 0)
        assert result.end_offset == 10

    @pytest.mark.parametrize("version", versions(23))
    @pytest.mark.parametrize("epoch", [-1, 1, 99])
    def test_epochs_that_never_were(self, filled: Exchange, version: int, epoch: int) -> None:
        """Undefined, as Kafka says: a consumer that comes from another cluster resets."""
        result = found(filled.send(offset_for_epoch("a", epoch), version))
        assert (result.error_code, result.leader_epoch) == (Code.NONE, -1)
        assert result.end_offset == -1

    @pytest.mark.parametrize("version", versions(23))
    def test_an_epoch_before_this_start(self, filled: Exchange, version: int) -> None:
        filled.open()
        filled.append(filled.broker.topic("a"), NOW)
        for epoch, end in ((0, 10), (1, 11)):
            result = found(filled.send(offset_for_epoch("a", epoch, current=1), version))
            assert (result.error_code, result.leader_epoch) == (Code.NONE, epoch)
            assert result.end_offset == end

    @pytest.mark.parametrize("version", versions(23))
    @pytest.mark.parametrize(
        ("current", "code"), [(0, Code.FENCED_LEADER_EPOCH), (2, Code.UNKNOWN_LEADER_EPOCH)]
    )
    def test_another_leader(self, filled: Exchange, version: int, current: int, code: Code) -> None:
        filled.open()
        result = found(filled.send(offset_for_epoch("a", 0, current=current), version))
        assert result.error_code == code

    @pytest.mark.parametrize("version", versions(23))
    @pytest.mark.parametrize(("name", "partition"), [("a", 1), ("b", 0)])
    def test_unknown(self, filled: Exchange, version: int, name: str, partition: int) -> None:
        asked = offset_for_epoch(name, 0, partition=partition)
        result = found(filled.send(asked, version))
        assert (result.partition, result.end_offset) == (partition, -1)
        assert result.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
