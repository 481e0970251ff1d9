"""Transactions with every client that has them: all or nothing, and nobody twice.

librdkafka, aiokafka and kafka-python speak the older protocol, Java the newer one.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka.protocol.admin import DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from tests.clients.admin_requests import find_coordinator
from tests.clients.brokers import Broker
from tests.clients.contract import Code, MakeTopic, NewName, Record, eventually
from tests.clients.wire import LATEST, Wire
from tools.kafka import java_tool

from kafka import KafkaProducer

TOOLS = "org.apache.kafka.tools"
CONCURRENT_TRANSACTIONS = 51


def confluent(broker: Broker, name: str, **settings: Any) -> Any:
    base = {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "log_level": 0}
    producer = Producer(base | settings)
    producer.init_transactions(30)
    return producer


def committed(broker: Broker, topic: str, partitions: int = 1) -> list[bytes]:
    """Everything a reader of committed records sees now, to the last stable offset."""
    return _read(broker, topic, partitions, "read_committed")


def eventually_committed(
    broker: Broker, topic: str, count: int, partitions: int = 1
) -> list[bytes]:
    """The same, when there are so many: a commit is shown a moment after it is answered."""

    def enough() -> list[bytes] | None:
        values = committed(broker, topic, partitions)
        return values if len(values) >= count else None

    return eventually(enough, f"{count} committed records")


def uncommitted(broker: Broker, topic: str) -> list[bytes]:
    return _read(broker, topic, 1, "read_uncommitted")


def _read(broker: Broker, topic: str, partitions: int, isolation: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"reader-of-{topic}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    values: list[bytes] = []
    left = partitions
    while left:
        message = consumer.poll(30)
        assert message is not None, "no end of the partition"
        if message.error():
            assert message.error().name() == "_PARTITION_EOF", message.error()
            left -= 1
        else:
            values.append(message.value())
    consumer.close()
    return values


def send(producer: Any, topic: str, *values: bytes, partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def test_smoke(broker: Broker, make_topic: MakeTopic, new_name: NewName) -> None:
    """confluent-kafka: commits are seen, aborts are not, in every partition."""
    topic = make_topic(partitions=2)
    producer = confluent(broker, new_name())
    for number in range(6):
        producer.begin_transaction()
        for partition in range(2):
            send(producer, topic, b"%d-%d" % (number, partition), partition=partition)
        if number % 3 == 1:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    expected = {b"%d-%d" % (n, p) for n in (0, 2, 3, 5) for p in range(2)}
    found = eventually_committed(broker, topic, 8, 2)
    assert set(found) == expected
    assert len(uncommitted(broker, topic)) == 6


def test_open_transactions_are_not_shown(
    broker: Broker, wire: Wire, make_topic: MakeTopic, new_name: NewName
) -> None:
    topic = make_topic()
    wire.write(topic, [Record(b"before")])
    producer = confluent(broker, new_name())
    producer.begin_transaction()
    send(producer, topic, b"inside")
    wire.write(topic, [Record(b"after")])
    assert committed(broker, topic) == [b"before"]
    assert uncommitted(broker, topic) == [b"before", b"inside", b"after"]
    producer.commit_transaction(30)
    every = [b"before", b"inside", b"after"]
    assert eventually_committed(broker, topic, 3) == every


def test_offsets_are_committed_with_the_records(
    broker: Broker, make_topic: MakeTopic, new_name: NewName
) -> None:
    topic, group = make_topic(), new_name()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    place = TopicPartition(topic, 0)
    producer = confluent(broker, new_name())
    for offset, end in ((5, producer.commit_transaction), (9, producer.abort_transaction)):
        producer.begin_transaction()
        send(producer, topic, b"x")
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], metadata, 30)
        end(30)
    eventually(
        lambda: True if consumer.committed([place], 30)[0].offset == 5 else None, "the offset"
    )
    consumer.close()


def test_a_second_producer_fences_the_first(
    broker: Broker, make_topic: MakeTopic, new_name: NewName
) -> None:
    topic, name = make_topic(), new_name()
    first = confluent(broker, name)
    first.begin_transaction()
    send(first, topic, b"first")
    second = confluent(broker, name)
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(30)
    assert refused.value.args[0].name() == "_FENCED"
    second.begin_transaction()
    send(second, topic, b"second")
    second.commit_transaction(30)
    assert eventually_committed(broker, topic, 1) == [b"second"]


def test_a_transaction_that_is_left_alone_is_aborted(
    broker: Broker, wire: Wire, make_topic: MakeTopic, new_name: NewName
) -> None:
    topic, name = make_topic(), new_name()
    producer = confluent(broker, name, **{"transaction.timeout.ms": 1000})
    producer.begin_transaction()
    send(producer, topic, b"left")
    wire.write(topic, [Record(b"after")])
    assert eventually_committed(broker, topic, 1) == [b"after"]


@pytest.mark.compat
def test_what_a_producer_hears_whose_time_was_up(
    wire: Wire, make_topic: MakeTopic, new_name: NewName
) -> None:
    topic = make_topic()
    started = {
        case: _begin(wire, topic, new_name()) for case in ("old", "commit", "abort", "again")
    }
    for who in started.values():
        request = DescribeTransactionsRequest(transactional_ids=[who["transactional_id"]])
        eventually(partial(_aborted, wire, request), "the transaction is aborted")

    def end(case: str, version: int, *, commit: bool) -> Code:
        request = EndTxnRequest(**started[case], committed=commit)
        return eventually(partial(_settled, wire, request, version), "the transaction is settled")

    started["done"] = _begin(wire, topic, new_name())
    assert end("done", 5, commit=True) is Code.NONE
    assert end("done", 5, commit=False) is Code.INVALID_TXN_STATE
    assert end("old", 4, commit=False) is Code.PRODUCER_FENCED
    assert end("commit", 5, commit=True) is Code.INVALID_TXN_STATE
    assert end("abort", 5, commit=False) is Code.NONE
    again = InitProducerIdRequest(**started["again"], transaction_timeout_ms=1000)
    assert Code(wire.call(again, 5).error_code) is Code.NONE


def _begin(wire: Wire, topic: str, name: str) -> dict[str, Any]:
    """A producer whose transaction will be open for a second."""
    first = InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
    )
    made = eventually(partial(_registered, wire, first), "a producer is registered")
    message = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    added = wire.call(
        AddPartitionsToTxnRequest(
            transactions=[],
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=made.producer_id,
            v3_and_below_producer_epoch=made.producer_epoch,
            v3_and_below_topics=[message(name=topic, partitions=[0])],
        ),
        3,
    )
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    return {
        "transactional_id": name,
        "producer_id": made.producer_id,
        "producer_epoch": made.producer_epoch,
    }


def _aborted(wire: Wire, request: Any) -> Any:
    (state,) = wire.call(request, 0).transaction_states
    return state if state.transaction_state == "CompleteAbort" else None


def _settled(wire: Wire, request: Any, version: int) -> Code | None:
    """The answer, or None while a Kafka is still busy with the end before."""
    code = wire.call(request, version).error_code
    return None if code == CONCURRENT_TRANSACTIONS else Code(code)


def _registered(wire: Wire, request: Any) -> Any:
    """The answer, or None while a Kafka that has just been started is not ready for it."""
    wire.call(find_coordinator(request.transactional_id, kind=1))  # which a Kafka makes for it
    answer = wire.call(request, 5)
    return answer if answer.error_code == 0 else None


def test_administration(
    broker: Broker, wire: Wire, make_topic: MakeTopic, new_name: NewName
) -> None:
    topic, name = make_topic(), new_name()
    producer = confluent(broker, name)
    producer.begin_transaction()
    send(producer, topic, b"x")
    (state,) = wire.call(
        DescribeTransactionsRequest(transactional_ids=[name]), 0
    ).transaction_states
    assert (state.transaction_state, state.topics[0].topic) == ("Ongoing", topic)
    assert state.topics[0].partitions == [0]
    listed = wire.call(
        ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[state.producer_id]),
        0,
    )
    assert [one.transactional_id for one in listed.transaction_states] == [name]
    producer.abort_transaction(30)
    missing = wire.call(DescribeTransactionsRequest(transactional_ids=["no"]), 0)
    assert missing.transaction_states[0].error_code == 105


@pytest.mark.compat
def test_kafkas_tool(broker: Broker, wire: Wire, make_topic: MakeTopic, new_name: NewName) -> None:
    """kafka-transactions.sh: look at an open transaction from all sides, then abort it."""
    topic, name = make_topic(), new_name()
    wire.write(topic, [Record(b"before")])
    producer = confluent(broker, name, **{"transaction.timeout.ms": 600_000})
    producer.begin_transaction()
    send(producer, topic, b"inside")
    wire.write(topic, [Record(b"after")])

    def tool(command: str, *arguments: str) -> str:
        options = ("--bootstrap-server", broker.bootstrap, command)
        return java_tool(f"{TOOLS}.TransactionsCommand", *options, *arguments).stdout

    place = ("--topic", topic, "--partition", "0")
    (listed,) = (line.split() for line in tool("list").splitlines() if name in line)
    assert listed[-1] == "Ongoing"
    described = tool("describe", "--transactional-id", name)
    assert f"{topic}-0" in described
    (row,) = tool("describe-producers", *place).splitlines()[1:]
    assert row.split()[0] == listed[2]
    assert row.split()[-1] == "1"
    # Open, but neither too old nor unknown to its coordinator.
    assert len(tool("find-hanging", *place).splitlines()) == 1
    assert committed(broker, topic) == [b"before"]
    tool("abort", *place, "--start-offset", "1")
    assert eventually_committed(broker, topic, 2) == [b"before", b"after"]
    tool("forceTerminateTransaction", "--transactionalId", name)
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)


def test_smoke_kafka_python(broker: Broker, make_topic: MakeTopic, new_name: NewName) -> None:
    topic = make_topic()
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=new_name())
    producer.init_transactions()
    for value, end in (
        (b"a", producer.commit_transaction),
        (b"b", producer.abort_transaction),
        (b"c", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.send(topic, value).get(30)
        end()
    producer.close()
    assert eventually_committed(broker, topic, 2) == [b"a", b"c"]


def test_smoke_aiokafka(broker: Broker, make_topic: MakeTopic, new_name: NewName) -> None:
    topic = make_topic()

    async def produce() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=new_name())
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"a")
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"b")
                    1 / 0  # noqa: B018
            async with producer.transaction():
                await producer.send_and_wait(topic, b"c")
        finally:
            await producer.stop()

    asyncio.run(produce())
    assert eventually_committed(broker, topic, 2) == [b"a", b"c"]


def test_smoke_java(broker: Broker, wire: Wire, make_topic: MakeTopic, new_name: NewName) -> None:
    """Kafka's own copier: consume, transform, produce, with every fourth transaction aborted."""
    source, target = make_topic(), make_topic()
    values = [b"%d" % n for n in range(300)]
    for start in range(0, 300, 10):
        wire.write(source, [Record(value) for value in values[start : start + 10]])
    done = java_tool(
        f"{TOOLS}.TransactionalMessageCopier",
        *("--broker-list", broker.bootstrap, "--transactional-id", new_name()),
        *("--consumer-group", new_name(), "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", target, "--max-messages", "300", "--transaction-size", "25"),
        *("--enable-random-aborts", "--use-group-metadata"),
    )
    last = json.loads(done.stdout.splitlines()[-1])
    assert last.get("remaining") == 0, done.stdout
    assert wire.offset(source, LATEST) == 300
    assert eventually_committed(broker, target, 300) == values
