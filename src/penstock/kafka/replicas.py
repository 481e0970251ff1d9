"""ElectLeaders (43), AlterPartitionReassignments (45), ListPartitionReassignments (46).

There is one node, which is the only replica and the leader of every partition: an election is not
needed, and no partition can go elsewhere. The answers are those of a Kafka with one node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kafka.protocol.admin import (
    AlterPartitionReassignmentsResponse,
    ElectLeadersResponse,
    ListPartitionReassignmentsResponse,
)

from penstock.broker.errors import UnknownTopicError
from penstock.errors import DamagedLogError, PenstockError
from penstock.kafka.call import NODE_ID, Call
from penstock.kafka.errors import Code
from penstock.kafka.outcome import DONE, Outcome, failure
from penstock.wire.codec import Message

_PREFERRED, _UNCLEAN = 0, 1
# For a partition without a leader, by the kind of election.
_NO_CANDIDATE: Final = {
    _PREFERRED: Code.PREFERRED_LEADER_NOT_AVAILABLE,
    _UNCLEAN: Code.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}
_NOT_NEEDED: Final = Outcome(Code.ELECTION_NOT_NEEDED, "this node leads the partition already")


# -- ElectLeaders


async def elect_leaders(call: Call, request: Message) -> Message:
    """Nobody is elected: this node leads what can be led."""
    kind = request.election_type if call.version >= 1 else _PREFERRED
    if kind not in _NO_CANDIDATE:
        return ElectLeadersResponse(error_code=Code.INVALID_REQUEST, replica_election_results=[])
    message = ElectLeadersResponse.ReplicaElectionResult
    results: list[Message] = []
    async for topic, numbers, everything in call.each(_asked(call, request.topic_partitions)):
        partitions = [
            message.PartitionResult(
                partition_id=number, error_code=outcome.code, error_message=outcome.message
            )
            async for number in call.each(numbers)
            # As Kafka: who asks for all partitions hears of those that had no leader.
            if (outcome := _election(call, kind, topic, number)) != _NOT_NEEDED or not everything
        ]
        results.append(message(topic=topic, partition_result=partitions))
    return ElectLeadersResponse(replica_election_results=results)


def _asked(
    call: Call, topics: Iterable[Message] | None
) -> Iterable[tuple[str, Iterable[int], bool]]:
    """Topics with partitions, and whether all were meant."""
    if topics is None:
        for topic in call.context.broker.topics():
            yield topic.name, range(len(topic.partitions)), True
    else:
        for wanted in topics:
            yield wanted.topic, wanted.partitions, False


def _election(call: Call, kind: int, topic: str, number: int) -> Outcome:
    try:
        call.context.broker.topic(topic).partition(number)
    except DamagedLogError as error:
        return Outcome(_NO_CANDIDATE[kind], error.reason)
    except PenstockError as error:
        return failure(error)
    return _NOT_NEEDED


# -- AlterPartitionReassignments


async def alter_partition_reassignments(call: Call, request: Message) -> Message:
    """A partition may stay where it is, and cannot go anywhere else."""
    message = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
    answer = AlterPartitionReassignmentsResponse(
        error_code=Code.NONE,
        error_message=None,
        responses=[
            message(
                name=topic.name,
                partitions=[
                    message.ReassignablePartitionResponse(
                        partition_index=partition.partition_index,
                        error_code=outcome.code,
                        error_message=outcome.message,
                    )
                    async for partition in call.each(topic.partitions)
                    for outcome in [_reassignment(call, topic.name, partition)]
                ],
            )
            async for topic in call.each(request.topics)
        ],
    )
    if call.version >= 1:
        answer.allow_replication_factor_change = request.allow_replication_factor_change
    return answer


def _reassignment(call: Call, topic: str, partition: Message) -> Outcome:
    number, replicas = partition.partition_index, partition.replicas
    try:
        call.context.broker.topic(topic).partition(number)
    except UnknownTopicError as error:
        return failure(error)
    except DamagedLogError:
        pass  # it has its place all the same
    if replicas is None:
        return Outcome(Code.NO_REASSIGNMENT_IN_PROGRESS, "there is none to cancel")
    if replicas != [NODE_ID]:
        cause = f"there is one node, {NODE_ID}, and every partition is on it"
        return Outcome(Code.INVALID_REPLICA_ASSIGNMENT, cause)
    return DONE


# -- ListPartitionReassignments


def list_partition_reassignments(call: Call, request: Message) -> Message:
    """There are none."""
    return ListPartitionReassignmentsResponse(error_code=Code.NONE, error_message=None, topics=[])
