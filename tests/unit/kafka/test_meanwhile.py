"""While a request takes long others act on the same things, its client goes, or the server stops."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol import consumer
from tests.clients.admin_requests import create_topics
from tests.unit.kafka.exchange import answer
from tests.unit.kafka.test_pace import LARGE, VERSION, Slow, metadata, names, offset_commit

from penstock.kafka import offsets
from penstock.kafka.errors import Code
from penstock.limits import HUGE_REQUEST_BYTES_MIN
from penstock.log.reading import NotCachedError
from penstock.wire import share_group_messages as share

HUGE = tuple(f"topic-{number:06}" for number in range(HUGE_REQUEST_BYTES_MIN // 8))


@pytest.fixture
def slow() -> Slow:
    return Slow()


def join(*topics: str) -> Any:
    names_read = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    subscription = struct.pack(">hi", 0, len(topics)) + names_read + struct.pack(">i", -1)
    protocol = consumer.JoinGroupRequest.JoinGroupRequestProtocol
    return consumer.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol(name="range", metadata=subscription)],
    )


def delete_offsets(topic: str, partitions: int) -> Any:
    wanted = consumer.OffsetDeleteRequest.OffsetDeleteRequestTopic
    one = wanted.OffsetDeleteRequestPartition
    numbers = [one(partition_index=number) for number in range(partitions)]
    return consumer.OffsetDeleteRequest(
        group_id="g", topics=[wanted(name=topic, partitions=numbers)]
    )


def test_offsets_stay_that_a_member_reads_who_joins_meanwhile(slow: Slow) -> None:
    slow.topic("orders", partitions=3)
    slow.send(offset_commit(), 6)
    committed = dict(slow.broker.groups.offsets("g"))
    assert committed
    request = delete_offsets("orders", 3)
    slot = slow.begin(request, 0)
    slow.turn()
    slow.begin(join("orders"), 2)
    assert not slow.broker.groups.get("g").is_empty
    slow.drain()
    (topic,) = answer(request, 0, slot).topics
    codes = {partition.error_code for partition in topic.partitions}
    assert codes == {Code.GROUP_SUBSCRIBED_TO_TOPIC}
    assert slow.broker.groups.offsets("g") == committed


def test_a_share_group_that_is_deleted_meanwhile_is_not_moved(slow: Slow) -> None:
    slow.topic("orders", partitions=3)
    wanted = share.AlterShareGroupOffsetsRequest
    topic = wanted.AlterShareGroupOffsetsRequestTopic
    one = topic.AlterShareGroupOffsetsRequestPartition
    places = [one(partition_index=number, start_offset=0) for number in range(3)]
    slow.begin(wanted(group_id="g", topics=[topic(topic_name="orders", partitions=places)]), 0)
    slow.turn()
    slow.broker.groups.delete("g", lambda *_: None)
    slow.begin(join("orders"), 2)  # and its name is a consumer group's now
    slow.drain()
    assert not dict(slow.broker.groups.queues.of("g"))


def test_large_requests_do_not_wait_for_the_disk_of_another(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow.topic("orders", partitions=2)
    waiting: list[Callable[[], None]] = []
    slow.context.run_cold = lambda job, done: waiting.append(done)

    def search(*_: Any, **__: Any) -> None:
        raise NotCachedError(None, 1, 0)  # type: ignore[arg-type]

    monkeypatch.setattr(offsets, "offset_for_time", search)
    wanted = consumer.ListOffsetsRequest.ListOffsetsTopic
    one = wanted.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=5)
    others = [wanted(name="x" * 200, partitions=[]) for _ in range(50)]
    request = consumer.ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[wanted(name="orders", partitions=[one]), *others]
    )
    cold = slow.begin(request, 4)
    slow.drain()
    assert len(waiting) == 1
    other = slow.begin(metadata(*LARGE), VERSION)
    slow.drain()
    assert other.data is not None
    assert cold.data is None


def test_the_largest_have_a_line_of_their_own(slow: Slow) -> None:
    request = metadata(*HUGE)
    huge, large = slow.begin(request, VERSION), slow.begin(metadata(*LARGE), VERSION)
    next_huge = slow.begin(request, VERSION)
    while large.data is None:
        for waiting in (slow.thread, slow.turns):
            if waiting:
                waiting.pop(0)()
    assert huge.data is None
    slow.drain()
    assert names(request, huge) == names(request, next_huge) == list(HUGE)


def test_whose_client_went_while_it_waited_is_not_handled(slow: Slow) -> None:
    """Nobody else notices: a connection is not read while its request waits."""
    slow.begin(metadata(*LARGE), VERSION)
    gone = slow.begin(create_topics(*LARGE), 5)
    gone.wanted = False
    last = slow.begin(metadata(*LARGE), VERSION)
    slow.drain()
    assert not slow.broker.topics()
    assert last.data is not None


def test_what_has_not_ended_is_given_up_by_a_stop(slow: Slow) -> None:
    wanted = ("a", "b", "c", "d")
    working, waiting = slow.begin(create_topics(*wanted), 5), slow.begin(metadata(*LARGE), VERSION)
    slow.turn()
    before = len(slow.broker.topics())
    assert before < len(wanted)
    slow.context.pace.stop()
    slow.drain()
    assert len(slow.broker.topics()) == before
    assert working.data is None
    assert waiting.data is None
    assert slow.begin(metadata(*LARGE), VERSION).data is None
