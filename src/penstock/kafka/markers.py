"""WriteTxnMarkers (27): with it Kafka's tools abort a transaction that hangs in a partition.

Between the brokers of a cluster it is how a coordinator brings its decision to the partitions. Here
there is one broker, which needs no request for that, and decides about whole transactions: an abort goes
to its coordinator, and a commit is refused, since nobody else can know that it is due.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kafka.protocol.producer import WriteTxnMarkersResponse

from penstock.broker.transaction import Producer
from penstock.errors import PenstockError
from penstock.kafka.call import Call
from penstock.kafka.errors import Code
from penstock.kafka.outcome import Outcome, attempt, outcome_of
from penstock.log.partition import Partition
from penstock.wire.codec import Message

_MARKER = WriteTxnMarkersResponse.WritableTxnMarkerResult
_TOPIC = _MARKER.WritableTxnMarkerTopicResult
_PARTITION = _TOPIC.WritableTxnMarkerPartitionResult


async def write_txn_markers(call: Call, request: Message) -> Message | None:
    """Abort what is asked for; answered when all of it is durable."""
    if not request.markers:
        return WriteTxnMarkersResponse(markers=[])
    outcomes: dict[int, Outcome] = {}

    def settle(index: int, outcome: Outcome) -> None:
        outcomes[index] = outcome
        if len(outcomes) == len(request.markers):
            call.context.pace.answer(call, _written(call, request, outcomes))

    async for index, marker in call.each(enumerate(request.markers)):
        await _abort(call, marker, partial(settle, index))
    return None


async def _written(call: Call, request: Message, outcomes: dict[int, Outcome]) -> Message:
    return WriteTxnMarkersResponse(
        markers=[
            await _result(call, marker, outcomes[index])
            async for index, marker in call.each(enumerate(request.markers))
        ]
    )


async def _abort(call: Call, marker: Message, settle: Callable[[Outcome], None]) -> None:
    if marker.transaction_result:
        settle(Outcome(Code.INVALID_REQUEST))
        return

    def done(error: PenstockError | None) -> None:
        settle(outcome_of(error))

    author = Producer(marker.producer_id, marker.producer_epoch)
    found = {
        partition
        async for topic in call.each(marker.topics)
        async for number in call.each(topic.partition_indexes)
        if (partition := _find(call, topic.name, number)) is not None
    }
    outcome = attempt(lambda: call.context.broker.transactions.abort(author, found, done))
    if not outcome.ok:
        settle(outcome)


def _find(call: Call, name: str, number: int) -> Partition | None:
    try:
        return call.context.broker.topic(name).partition(number)
    except PenstockError:
        return None


async def _result(call: Call, marker: Message, outcome: Outcome) -> Message:
    topics = []
    async for topic in call.each(marker.topics):
        partitions = []
        async for number in call.each(topic.partition_indexes):
            missing = _find(call, topic.name, number) is None
            code = Code.UNKNOWN_TOPIC_OR_PARTITION if missing else outcome.code
            partitions.append(_PARTITION(partition_index=number, error_code=code))
        topics.append(_TOPIC(name=topic.name, partitions=partitions))
    return _MARKER(producer_id=marker.producer_id, topics=topics)
