"""OffsetCommit (8), answered when what it commits is certain (broker/offsets.py).

By hand, because consumers that commit what they have done send one for every few records.
"""

from __future__ import annotations

from functools import partial

from penstock.broker.group_member import Identity
from penstock.errors import PenstockError, StorageError
from penstock.kafka.call import Call
from penstock.kafka.errors import Code
from penstock.kafka.group_offsets import EPOCH_FROM, forget_deleted, partition_id
from penstock.kafka.outcome import DONE, Outcome, RefusedError, attempt, failure
from penstock.kafka.pace import LargeRequest
from penstock.limits import LARGE_REQUEST_BYTES_MIN
from penstock.log.committed import Offsets
from penstock.wire.requests import (
    OFFSET_COMMIT_FLEXIBLE_FROM,
    OffsetCommit,
    OffsetCommitRequest,
    TopicKey,
    parse_offset_commit,
)
from penstock.wire.writer import Writer

_THROTTLE_FROM = 3
_Results = list[tuple[TopicKey, list[tuple[int, Outcome]]]]
"""How it went with each partition."""


def handle(call: Call) -> None:
    """Keep offsets; answered when they are certain."""
    parse = partial(parse_offset_commit, call.frame, call.version, call.body_start)
    if len(call.frame) < LARGE_REQUEST_BYTES_MIN:
        _commit(call, parse())
    else:
        call.context.pace.take(LargeRequest(call, parse, partial(_commit_many, call)))


async def _commit_many(call: Call, request: OffsetCommitRequest) -> None:
    """The same in pieces."""
    offsets: Offsets = {}
    results: _Results = [
        (key, [(w.number, _note(call, key, w, offsets)) async for w in call.each(commits)])
        async for key, commits in call.each(request.topics)
    ]
    forget_deleted(call.context.broker, offsets)
    _finish(call, request, offsets, results)


def _commit(call: Call, request: OffsetCommitRequest) -> None:
    offsets: Offsets = {}
    results: _Results = [
        (key, [(wanted.number, _note(call, key, wanted, offsets)) for wanted in commits])
        for key, commits in request.topics
    ]
    _finish(call, request, offsets, results)


def _finish(call: Call, request: OffsetCommitRequest, offsets: Offsets, results: _Results) -> None:
    outcome = attempt(lambda: _check(call, request, offsets))
    if outcome.ok and offsets:
        groups = call.context.broker.groups
        settle = partial(_settle, call, results)
        outcome = attempt(lambda: groups.commit(request.group, offsets, settle))
        if outcome.ok:
            return
    _answer(call, results, outcome)


def _note(call: Call, key: TopicKey, wanted: OffsetCommit, offsets: Offsets) -> Outcome:
    """Take one position among those that will be committed, or say why not."""
    try:
        found = partition_id(call.topic(key), wanted.number)
        offsets[found] = call.context.broker.groups.position(
            wanted.offset, wanted.leader_epoch, wanted.metadata
        )
    except PenstockError as error:
        return failure(error)
    return DONE


def _check(call: Call, request: OffsetCommitRequest, offsets: Offsets) -> None:
    groups = call.context.broker.groups
    who = Identity(request.member, request.instance)
    groups.check_commit(request.group, who, request.generation, offsets)
    if (
        request.generation >= 0
        and call.version < EPOCH_FROM
        and groups.has_epochs(request.group, request.member)
    ):
        raise RefusedError(
            Code.UNSUPPORTED_VERSION,
            f"commit offsets of group {request.group}",
            f"members with an epoch need version {EPOCH_FROM}",
        )


def _settle(call: Call, results: _Results, error: StorageError | None) -> None:
    _answer(call, results, DONE if error is None else failure(error))


def _answer(call: Call, results: _Results, outcome: Outcome) -> None:
    answer = Writer(call.correlation_id, call.version >= OFFSET_COMMIT_FLEXIBLE_FROM)
    if call.version >= _THROTTLE_FROM:
        answer.int32(0)
    answer.length(len(results))
    for key, partitions in results:
        answer.topic(key.name, key.id)
        answer.length(len(partitions))
        for number, done in partitions:
            answer.int32(number)
            answer.int16(outcome.code if done.ok else done.code)
            answer.end()
        answer.end()
    answer.end()
    call.answer.fill(answer.finish())
