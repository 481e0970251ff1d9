"""Acknowledgements of share groups' members, which come with a fetch or alone (ShareAcknowledge, 79).

They are answered when they are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from typing import Final

from penstock.broker.queues.errors import NotHeldError
from penstock.broker.queues.queue import Queue, Said, Verdict
from penstock.errors import PenstockError, StorageError
from penstock.kafka.call import NODE_ID, Call, Context
from penstock.kafka.errors import Code
from penstock.kafka.outcome import DONE, Outcome, RefusedError, failure
from penstock.kafka.share_session import FINAL_EPOCH, INITIAL_EPOCH, SessionKey, ShareSession
from penstock.log.positions import PartitionId
from penstock.wire.codec import Message
from penstock.wire.share_group_messages import ShareAcknowledgeResponse

_RENEW: Final = 4
_VERDICTS: Final = {
    0: Verdict.DONE,  # a gap: there is no record at this offset
    1: Verdict.DONE,
    2: Verdict.BACK,
    3: Verdict.DONE,  # rejected: it is not to be delivered again, whatever the member made of it
    _RENEW: Verdict.MORE_TIME,
}
Outcomes = dict[PartitionId, Outcome]


# -- ShareAcknowledge


def share_acknowledge(call: Call, request: Message) -> Message | None:
    """A member says what became of its records."""
    try:
        key = session_key(call, request)
        if request.share_session_epoch == INITIAL_EPOCH:
            raise RefusedError(
                Code.INVALID_SHARE_SESSION_EPOCH, "acknowledge", "a fetch opens a session first"
            )
        session = call.context.share_sessions.use(key, request.share_session_epoch)
    except PenstockError as error:
        refused = failure(error)
        return ShareAcknowledgeResponse(
            error_code=refused.code, error_message=refused.message, responses=[], node_endpoints=[]
        )

    def settled(outcomes: Outcomes) -> None:
        if request.share_session_epoch == FINAL_EPOCH:
            end_session(call.context, session)
        call.reply(_acknowledged(call, session, outcomes))

    acknowledge(call, session, request, settled)
    return None


def _acknowledged(call: Call, session: ShareSession, outcomes: Outcomes) -> Message:
    message = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse
    topics: dict[object, list[Message]] = {}
    for (topic_id, number), outcome in outcomes.items():
        topics.setdefault(topic_id, []).append(
            message.PartitionData(
                partition_index=number,
                error_code=outcome.code,
                error_message=outcome.message,
                current_leader=message.PartitionData.LeaderIdAndEpoch(
                    leader_id=NODE_ID, leader_epoch=call.context.broker.epoch
                ),
            )
        )
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_ms(call, session.key.group),
        responses=[
            message(topic_id=topic_id, partitions=items) for topic_id, items in topics.items()
        ],
        node_endpoints=[],
    )


# -- for fetches, too


def session_key(call: Call, request: Message) -> SessionKey:
    """Whose request it is."""
    operation = "work for a share group"
    if not request.group_id or not request.member_id:
        raise RefusedError(Code.INVALID_REQUEST, operation, "the group or the member has no name")
    if not call.context.broker.groups.is_share_group(request.group_id):
        raise RefusedError(
            Code.GROUP_ID_NOT_FOUND,
            operation,
            f"there is no share group {request.group_id[:100]}",
            "join it first",
        )
    return SessionKey(request.group_id, request.member_id)


def lock_ms(call: Call, group: str) -> int:
    """How long members of a group may keep a record."""
    return round(call.context.broker.groups.configs.of(group).rules.hold_seconds * 1000)


def end_session(context: Context, session: ShareSession) -> None:
    """A member stops, or its connection is gone: what it still holds is for others."""
    if context.share_sessions.close(session):
        context.broker.groups.queues.leave(session.key.group, session.key.member)


def acknowledge(
    call: Call, session: ShareSession, request: Message, done: Callable[[Outcomes], None]
) -> None:
    """Take all acknowledgements of a request; done is called when they are durable, or refused."""
    outcomes: Outcomes = {}
    # One more than there are, so that it is not done before all were taken.
    waiting = 1

    def settle(partition: PartitionId, error: PenstockError | None) -> None:
        nonlocal waiting
        waiting -= 1
        outcomes[partition] = DONE if error is None else failure(error)
        if waiting == 0:
            done(outcomes)

    for topic in request.topics:
        for item in topic.partitions:
            if not item.acknowledgement_batches:
                continue
            partition = PartitionId(topic.topic_id, item.partition_index)
            waiting += 1
            settled: Callable[[StorageError | None], None] = partial(settle, partition)
            try:
                renews = call.version >= 2 and request.is_renew_ack
                queue = _queue(call, session, partition)
                said = list(_said(call, queue, item, renews=renews))
                queue.settle(session.key.member, said, settled)
            except PenstockError as error:
                settle(partition, error)
    waiting -= 1
    if waiting == 0:
        done(outcomes)


def _queue(call: Call, session: ShareSession, partition: PartitionId) -> Queue:
    queue = call.context.broker.groups.queues.of(session.key.group).get(partition)
    if queue is None:
        raise NotHeldError("acknowledge", "nothing of this partition was given out")
    return queue


def _said(call: Call, queue: Queue, item: Message, *, renews: bool) -> Iterator[Said]:
    """What a member says of a partition's records, as runs of the same verdict."""
    end = -1
    for batch in item.acknowledgement_batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if not end < first <= last:
            raise _invalid(f"offsets from {first} to {last} after {end}")
        if len(types) not in (1, last - first + 1):
            raise _invalid(f"{len(types)} types for the offsets from {first} to {last}")
        # Before they are gone over: what can have been given out are not many.
        if last >= queue.given_end:
            raise _invalid(f"nothing above {queue.given_end - 1} was given out")
        if len(types) > 1 and first < queue.start:
            raise NotHeldError("acknowledge", f"all below {queue.start} is finished")
        end = last
        for kind, same in groupby(types):
            if kind not in _VERDICTS or (kind == _RENEW and not renews):
                raise _invalid(f"type {kind} is unknown, or not announced")
            if (
                kind == _RENEW
                and not call.context.broker.groups.configs.of(queue.id.readers).may_renew
            ):
                raise _invalid("this group does not renew (share.renew.acknowledge.enable)")
            count = last - first + 1 if len(types) == 1 else sum(1 for _ in same)
            yield Said(first, first + count - 1, _VERDICTS[kind])
            first += count


def _invalid(cause: str) -> RefusedError:
    return RefusedError(Code.INVALID_REQUEST, "acknowledge", cause)
