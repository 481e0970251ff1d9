"""Fetch (key 1): batches go from the segment to the answer untouched.

A fetch that finds less than it asked for waits on its partitions, is woken by appends that became
durable, and is answered when enough has arrived or its time is up. It never polls. A read that would
wait for the disk is first made on a thread, then tried again here.

This module may run compiled (setup.py), with the C types that stand in fetch.pxd.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Sequence

from penstock.broker.appending import Appender
from penstock.broker.producers import Aborted
from penstock.broker.quotas import CONSUME
from penstock.errors import DamagedLogError, PenstockError
from penstock.files import Buffer, FileSlice
from penstock.kafka.call import Call, Timer
from penstock.kafka.errors import Code
from penstock.kafka.fetch_session import INITIAL_EPOCH, FetchSession
from penstock.kafka.leader_epoch import epoch_code
from penstock.kafka.outcome import failure
from penstock.kafka.throttling import budget_of, charge
from penstock.limits import (
    FETCH_BYTES_ENOUGH_HERE,
    FETCH_RECORDS_ENOUGH_HERE,
    FETCH_RESPONSE_BYTES_MAX,
    FETCH_WAIT_MS_MAX,
)
from penstock.log.partition import Partition
from penstock.log.reading import NotCachedError, end_of, read, record_bytes
from penstock.wire.requests import (
    FETCH_FLEXIBLE_FROM,
    FINAL_EPOCH,
    NO_SESSION,
    FetchPartition,
    FetchRequest,
    PartitionKey,
    TopicKey,
    parse_fetch,
)
from penstock.wire.writer import Writer

_COLD_TRIES_MAX = 8
_NONE = int(Code.NONE)
_log = logging.getLogger(__name__)


@functools.lru_cache(1000)
def _tell_once(trouble: str) -> None:
    """Who meets it knows only a code, and comes again ten times a second; the owner must hear of it."""
    _log.error("%s", trouble)


def handle(call: Call) -> None:
    """Answer a fetch now or when there is something to answer."""
    request = parse_fetch(call.frame, call.version, call.body_start)
    sessions = call.context.fetch_sessions
    session: FetchSession | None = None
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id != NO_SESSION:
            sessions.close(request.session_id)
        if request.session_epoch == INITIAL_EPOCH:
            session = sessions.open(request.partitions)
        Fetch(call, request, request.partitions, session, incremental=False).start()
        return
    session = sessions.get(request.session_id)
    if session is None:
        _refuse(call, Code.FETCH_SESSION_ID_NOT_FOUND)
        return
    if session.epoch != request.session_epoch:
        _refuse(call, Code.INVALID_FETCH_SESSION_EPOCH)
        return
    if not sessions.update(session, request.partitions, request.forgotten):
        _refuse(call, Code.FETCH_SESSION_ID_NOT_FOUND)
        return
    session.next_epoch()
    Fetch(call, request, session.partitions, session, incremental=True).start()


def _refuse(call: Call, code: Code) -> None:
    answer = Writer(call.correlation_id, call.version >= FETCH_FLEXIBLE_FROM)
    _write_start(answer, call.version, code, NO_SESSION, 0)
    answer.length(0)
    answer.end()
    call.answer.fill(answer.finish())


class Found:
    """What is answered for one partition."""

    def __init__(self, key: PartitionKey, wanted: FetchPartition) -> None:
        self.key = key
        self.wanted = wanted
        self.partition: Partition | None = None
        self.code = _NONE
        self.data: Buffer | FileSlice = b""
        self.aborted: Sequence[Aborted] | None = None  # not asked for

    @property
    def is_news(self) -> bool:
        """Whether an incremental answer must mention the partition."""
        if self.code != _NONE or self.data:
            return True
        assert self.partition is not None
        return (
            self.partition.durable_offset != self.wanted.told_high_watermark
            or self.partition.start_offset != self.wanted.told_start_offset
        )


class Fetch:
    """One fetch: reads, waits if it must, answers once."""

    def __init__(
        self,
        call: Call,
        request: FetchRequest,
        wanted: dict[PartitionKey, FetchPartition],
        session: FetchSession | None,
        *,
        incremental: bool,
    ) -> None:
        self._call = call
        self._request = request
        self._wanted = wanted
        self._session = session
        self._incremental = incremental
        self._watched: list[Partition] = []
        self._timer: Timer | None = None
        self._arrived = 0
        self._cold_tries = 0
        self._looking = False
        self._done = False
        self._budget = budget_of(call, CONSUME)
        room = min(request.max_bytes, FETCH_RESPONSE_BYTES_MAX)
        if self._budget is not None:
            # A second's worth at most, or it would have to rest for a long time.
            room = min(room, int(self._budget.rate))
        self._room = max(room, 1)  # the first batch is sent whatever the limits are
        # No wait brings more than an answer has room for.
        self._min_bytes = min(request.min_bytes, self._room)
        self._is_full = False

    def start(self) -> None:
        """Answer at once if there is enough, or wait."""
        found = self._read_all()
        if found is None:
            return
        if self._request.max_wait_ms <= 0 or not found or self._is_enough(found):
            self._answer(found)
            return
        self._watch([item.partition for item in found if item.partition is not None])

    def _is_enough(self, found: list[Found]) -> bool:
        """Whether to answer now; notes how much there is."""
        size = 0
        for item in found:
            size += len(item.data)
            if item.code != _NONE:
                return True
        self._arrived = size
        return self._is_full or size >= self._min_bytes

    def _watch(self, partitions: list[Partition]) -> None:
        self._watched = partitions
        for partition in partitions:
            partition.watchers.add(self)
        self._call.context.waiting_fetches.add(self)
        self._call.answer.waiting = self
        wait = min(self._request.max_wait_ms, FETCH_WAIT_MS_MAX) / 1000
        self._timer = self._call.context.call_later(wait, self.finish)

    def advanced(self, partition: Partition, added_bytes: int) -> None:
        """More of a partition has become readable."""
        self._arrived += added_bytes
        if self._arrived < self._min_bytes or self._looking:
            return
        # At the end of the loop's turn: the same commit round may have more for other partitions.
        if self._request.committed_only:
            self._looking = True
            self._call.context.call_soon(self._look)
        else:
            self._stop_waiting()
            self._call.context.call_soon(self.finish)

    def _look(self) -> None:
        """Answer if what arrived is committed; otherwise go on waiting."""
        self._looking = False
        if self._done:
            return
        found = self._read_all()
        if found is not None and self._is_enough(found):
            self._stop_waiting()
            self._answer(found)

    def finish(self) -> None:
        """Answer with what there is now."""
        if self._done:
            return
        self._stop_waiting()
        found = self._read_all()
        if found is not None:
            self._answer(found)

    def abandon(self) -> None:
        """The client has gone: let go of everything that would be held until the time is up."""
        self._done = True
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        for partition in self._watched:
            partition.watchers.discard(self)
        self._watched = []
        if self._timer is not None:
            # Or each would hold the other until the collector of cycles stops the world.
            self._call.answer.waiting = None
            self._call.context.waiting_fetches.discard(self)
            self._timer.cancel()
            self._timer = None

    # -- reading

    def _read_all(self) -> list[Found] | None:
        """Read every partition; None if the disk must be waited for, and this is called again then."""
        try:
            return self._read()
        except NotCachedError as missing:
            self._cold_tries += 1
            self._call.context.run_cold(missing.warm, self.finish)
            return None

    def _read(self) -> list[Found]:
        enough = room = self._room
        is_here = self._call.peer.is_here
        if is_here:
            enough = min(room, max(FETCH_BYTES_ENOUGH_HERE, self._min_bytes))
        found: list[Found] = []
        taken = 0
        left_out: PartitionKey | None = None
        for key in self._in_turn():
            wanted = self._wanted[key]
            item = Found(key, wanted)
            found.append(item)
            try:
                item.partition = self._partition(key)
                item.code = epoch_code(wanted.leader_epoch, item.partition.epoch)
                if item.code != _NONE:
                    continue
                if taken < enough:
                    # Only the first partition with data may exceed the limit, and only by its first
                    # batch, so that a client with small limits still makes progress.
                    limit = min(wanted.max_bytes, room - taken)
                    data = self._read_partition(item, limit)
                    if taken == 0 or len(data) <= limit:
                        item.data = data
                        taken += len(data)
                        if is_here and data:
                            average = record_bytes(item.partition, wanted.offset)
                            enough = min(room, max(enough, FETCH_RECORDS_ENOUGH_HERE * average))
                        continue
                self._is_full = True
                left_out = left_out or key
            except NotCachedError:
                if taken == 0 and self._cold_tries < _COLD_TRIES_MAX:
                    raise
                # Answer with what is at hand; the next fetch begins with the rest. Not with one that was
                # first and stays cold: those behind it would never have their turn.
                if taken > 0:
                    left_out = left_out or key
            except (PenstockError, OSError) as error:
                item.code = failure(error).code
                if isinstance(error, DamagedLogError | OSError):
                    _tell_once(str(error))
        self._call.peer.fetches_next = left_out
        return found

    def _in_turn(self) -> Collection[PartitionKey]:
        """The partitions in the client's order, but from the first on that the last answer left out.

        Clients without a session may name them in the same order every time: what stands last would
        never be read while there is enough of the first, nor what only the first may be, which is
        larger than its limit or waited for. Sessions have an order of their own.
        """
        first = self._call.peer.fetches_next
        if self._session is not None or first not in self._wanted:
            return self._wanted
        keys = list(self._wanted)
        at = keys.index(first)
        return keys[at:] + keys[:at]

    def _read_partition(self, item: Found, limit: int) -> Buffer | FileSlice:
        """Read what the client may see: all that is durable, or only what is decided."""
        partition = item.partition
        assert partition is not None
        if not self._request.committed_only:
            return read(partition, item.wanted.offset, limit)
        producers = Appender.producers(partition)
        end = producers.last_stable_offset(partition.durable_offset)
        offset = item.wanted.offset
        data = read(partition, offset, limit, end)
        item.aborted = producers.aborted_between(offset, end)
        if item.aborted:
            # Only those the client meets in this answer: somebody far behind has them all ahead.
            item.aborted = producers.aborted_between(offset, end_of(partition, offset, data))
        return data

    def _partition(self, key: PartitionKey) -> Partition:
        return self._call.topic(key.topic).partition(key.partition)

    # -- answering

    def _answer(self, found: list[Found]) -> None:
        self._done = True
        session = self._session
        if self._incremental:
            found = [item for item in found if item.is_news]
        if session is not None:
            self._remember(found)
        call = self._call
        throttle_ms = 0
        if self._budget is not None:
            throttle_ms = charge(call, self._budget, sum([len(item.data) for item in found]))
        answer = Writer(call.correlation_id, call.version >= FETCH_FLEXIBLE_FROM)
        session_id = NO_SESSION if session is None else session.id
        _write_start(answer, call.version, _NONE, session_id, throttle_ms)
        topics = _by_topic(found)
        answer.length(len(topics))
        for key, items in topics:
            answer.topic(key.name, key.id)
            answer.length(len(items))
            for item in items:
                _write(answer, item, call.version)
            answer.end()
        answer.end()
        call.answer.fill(answer.finish())

    def _remember(self, found: list[Found]) -> None:
        """Note what the client has been told, and let partitions that had data go last next time."""
        assert self._session is not None
        for item in found:
            if item.partition is not None:
                item.wanted.told_high_watermark = item.partition.durable_offset
                item.wanted.told_start_offset = item.partition.start_offset
            if item.data and self._session.partitions.get(item.key) is item.wanted:
                del self._session.partitions[item.key]
                self._session.partitions[item.key] = item.wanted


def _by_topic(found: Sequence[Found]) -> list[tuple[TopicKey, list[Found]]]:
    topics: dict[TopicKey, list[Found]] = {}
    for item in found:
        topics.setdefault(item.key.topic, []).append(item)
    return list(topics.items())


def _write_start(
    answer: Writer, version: int, code: int, session_id: int, throttle_ms: int
) -> None:
    answer.int32(throttle_ms)
    if version >= 7:
        answer.int16(code)
        answer.int32(session_id)


def _write(answer: Writer, item: Found, version: int) -> None:
    # An error says nothing about offsets, as in Kafka.
    partition = item.partition if item.code == _NONE else None
    end = stable = -1
    if partition is not None:
        end = partition.durable_offset
        stable = max(Appender.producers(partition).last_stable_offset(end), partition.start_offset)
    answer.int32(item.key.partition)
    answer.int16(item.code)
    answer.int64(end)  # high watermark
    answer.int64(stable)
    if version >= 5:
        answer.int64(partition.start_offset if partition is not None else -1)
    answer.length(-1 if item.aborted is None else len(item.aborted))
    for aborted in item.aborted or ():
        answer.int64(aborted.producer_id)
        answer.int64(aborted.first_offset)
        answer.end()
    if version >= 11:
        answer.int32(-1)  # no other replica to read from
    answer.records(item.data)
    answer.end()
