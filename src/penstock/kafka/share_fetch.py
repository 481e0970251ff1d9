"""ShareFetch (78): acknowledges what a member has, and gives it more.

First the acknowledgements that came with it are made durable. Then a fetch that finds nothing waits on
its partitions for records, and on their queues for what others give back, until its time is up.
"""

from __future__ import annotations

from functools import partial

from penstock.broker.queues.journal import QueueId
from penstock.broker.queues.queue import Queue
from penstock.broker.quotas import CONSUME
from penstock.broker.share_reading import Delivery, Wish, deliver, first_position
from penstock.errors import PenstockError, StorageError
from penstock.kafka.call import NODE_ID, Call, Timer
from penstock.kafka.errors import Code
from penstock.kafka.outcome import DONE, Outcome, RefusedError, failure
from penstock.kafka.share_acknowledging import (
    Outcomes,
    acknowledge,
    end_session,
    lock_ms,
    session_key,
)
from penstock.kafka.share_session import FINAL_EPOCH, INITIAL_EPOCH, ShareSession
from penstock.kafka.throttling import budget_of, charge
from penstock.limits import FETCH_RESPONSE_BYTES_MAX, FETCH_WAIT_MS_MAX
from penstock.log.partition import Partition
from penstock.log.positions import PartitionId
from penstock.log.reading import NotCachedError
from penstock.wire.codec import Message
from penstock.wire.share_group_messages import ShareFetchResponse

_COLD_TRIES_MAX = 8
_RECORD_LIMIT = 1
_NOTHING = Delivery([], [])


def share_fetch(call: Call, request: Message) -> Message | None:
    """Answer when the acknowledgements are durable and there is something to give out."""
    try:
        session = _session(call, request)
    except PenstockError as error:
        refused = failure(error)
        return ShareFetchResponse(
            error_code=refused.code, error_message=refused.message, responses=[], node_endpoints=[]
        )
    ShareFetch(call, request, session).start()
    return None


def _session(call: Call, request: Message) -> ShareSession:
    key = session_key(call, request)
    sessions = call.context.share_sessions
    named = [
        PartitionId(topic.topic_id, item.partition_index)
        for topic in request.topics
        for item in topic.partitions
    ]
    if request.share_session_epoch == INITIAL_EPOCH:
        if any(
            item.acknowledgement_batches for topic in request.topics for item in topic.partitions
        ):
            raise RefusedError(
                Code.INVALID_REQUEST, "open a share session", "it begins with acknowledgements"
            )
        session = sessions.open(key)
        call.peer.closing[key] = partial(end_session, call.context, session)
    else:
        session = sessions.use(key, request.share_session_epoch)
    forgotten = [
        PartitionId(topic.topic_id, number)
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    ]
    session.update(named, forgotten)
    return session


class Found:
    """What is answered for one partition."""

    def __init__(self) -> None:
        self.outcome = DONE
        self.delivery = _NOTHING

    @property
    def is_news(self) -> bool:
        """Whether the member must hear of it."""
        return bool(self.delivery.given) or not self.outcome.ok


class ShareFetch:
    """One fetch: acknowledges, reads, waits if it must, answers once."""

    def __init__(self, call: Call, request: Message, session: ShareSession) -> None:
        self._call = call
        self._request = request
        self._session = session
        self._acknowledged: Outcomes = {}
        self._failed: Outcomes = {}
        self._watched: list[Partition] = []
        self._queues: list[Queue] = []
        self._timer: Timer | None = None
        self._cold_tries = 0
        self._looking = False
        self._done = False
        self._budget = budget_of(call, CONSUME)
        self._groups = call.context.broker.groups
        self._config = self._groups.configs.of(session.key.group)

    def start(self) -> None:
        """Take the acknowledgements first."""
        self._call.answer.waiting = self
        acknowledge(self._call, self._session, self._request, self._go_on)

    def _go_on(self, outcomes: Outcomes) -> None:
        if self._done:
            return  # the client went while its acknowledgements were on their way to the disk
        self._acknowledged = outcomes
        request = self._request
        if request.share_session_epoch == FINAL_EPOCH:
            end_session(self._call.context, self._session)
            self._answer({})
        elif request.max_bytes <= 0 or request.max_records <= 0 or self._groups.stopping:
            self._answer({})  # it only acknowledges, or nothing can be given out any more
        else:
            wait = min(max(0, request.max_wait_ms), FETCH_WAIT_MS_MAX) / 1000
            self._call.context.waiting_fetches.add(self)
            self._timer = self._call.context.call_later(wait, self.finish)
            self._look()

    # -- waiting

    def advanced(self, partition: Partition, added_bytes: int) -> None:
        """More of a partition has become readable."""
        self._wake()

    def _wake(self) -> None:
        if not self._looking and not self._done:
            self._looking = True
            # At the end of the loop's turn: the same commit round may have more for others.
            self._call.context.call_soon(self._look)

    def _look(self) -> None:
        """Answer if there is something to give out; otherwise go on waiting."""
        self._looking = False
        if self._done:
            return
        self._stop_watching()
        found = self._read_all(watch=True)
        if found is not None and any(
            item.delivery.given or not item.outcome.ok for item in found.values()
        ):
            self._answer(found)
        elif found is not None and any(item.delivery.skipped_on for item in found.values()):
            self._wake()

    def finish(self) -> None:
        """Answer with what there is now."""
        if not self._done:
            self._stop_watching()
            found = self._read_all(watch=False)
            if found is not None:
                self._answer(found)

    def abandon(self) -> None:
        """The client has gone: give out nothing."""
        self._done = True
        self._let_go()

    def _stop_watching(self) -> None:
        for partition in self._watched:
            partition.watchers.discard(self)
        for queue in self._queues:
            queue.watchers.discard(self._wake)
        self._watched, self._queues = [], []

    def _let_go(self) -> None:
        self._stop_watching()
        self._call.answer.waiting = None
        self._call.context.waiting_fetches.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- reading

    def _read_all(self, *, watch: bool) -> dict[PartitionId, Found] | None:
        """Read every partition; None if the disk must be waited for, and this is called again then."""
        try:
            return self._read(watch=watch)
        except NotCachedError as missing:
            self._cold_tries += 1
            self._call.context.run_cold(missing.warm, self._look if watch else self.finish)
            return None

    def _read(self, *, watch: bool) -> dict[PartitionId, Found]:
        room = min(self._request.max_bytes, FETCH_RESPONSE_BYTES_MAX)
        if self._budget is not None:
            # A second's worth at most, or it would have to rest for a long time.
            room = min(room, int(self._budget.rate))
        records = self._request.max_records
        found: dict[PartitionId, Found] = {}
        for partition_id in self._session.partitions:
            item = found[partition_id] = Found()
            try:
                partition = self._partition(partition_id)
                if watch:
                    self._watched.append(partition)
                    partition.watchers.add(self)
                if room > 0 and records > 0:
                    item.delivery = self._deliver(partition, records, room, watch=watch)
                    room -= item.delivery.size
                    records -= item.delivery.records
            except NotCachedError:
                given = any(one.delivery.given for one in found.values())
                if not given and self._cold_tries < _COLD_TRIES_MAX:
                    raise
            except (PenstockError, OSError) as error:
                item.outcome = failure(error)
        return found

    def _partition(self, partition_id: PartitionId) -> Partition:
        topic = self._call.context.broker.topic_by_id(partition_id.topic_id)
        return topic.partition(partition_id.partition)

    def _deliver(self, partition: Partition, records: int, room: int, *, watch: bool) -> Delivery:
        queue = self._queue(partition)
        if queue is None:
            return _NOTHING
        if watch:
            self._queues.append(queue)
            queue.watchers.add(self._wake)
        if not queue.is_durable:
            return _NOTHING
        mode = self._request.share_acquire_mode if self._call.version >= 2 else 0
        wish = Wish(records, room, mode == _RECORD_LIMIT, self._config.committed_only)
        return deliver(queue, partition, self._session.key.member, wish)

    def _queue(self, partition: Partition) -> Queue | None:
        """The group's queue over a partition, which is made when it is first asked for."""
        group = self._session.key.group
        queues = self._groups.queues
        failed = self._failed.get(partition.identity)
        if failed is not None:
            raise RefusedError(failed.code, f"begin a queue over {partition}", failed.message or "")
        queue = queues.of(group).get(partition.identity)
        if queue is None:
            if not self._groups.is_share_group(group):
                # Deleted while this waited: a queue made now would bring it back.
                raise RefusedError(Code.GROUP_ID_NOT_FOUND, "fetch", f"group {group} is gone")

            def begun(error: StorageError | None) -> None:
                if error is not None:
                    self._failed[partition.identity] = failure(error)

            now_ms = self._call.context.clock.wall_ms()
            position = first_position(partition, self._config, now_ms)
            queue = queues.begin(QueueId(group, partition.identity), position, begun)
        return queue

    # -- answering

    def _answer(self, found: dict[PartitionId, Found]) -> None:
        self._done = True
        self._let_go()
        for partition_id, item in found.items():
            if item.delivery.given:
                self._session.put_last(partition_id)
        if self._request.share_session_epoch != INITIAL_EPOCH:
            found = {partition_id: item for partition_id, item in found.items() if item.is_news}
        throttle_ms = 0
        if self._budget is not None:
            size = sum(item.delivery.size for item in found.values())
            throttle_ms = charge(self._call, self._budget, size)
        message = ShareFetchResponse.ShareFetchableTopicResponse
        topics: dict[object, list[Message]] = {}
        for partition_id in dict.fromkeys((*self._acknowledged, *found)):
            topics.setdefault(partition_id.topic_id, []).append(
                _partition_data(
                    self._call.context.broker.epoch,
                    partition_id.partition,
                    found.get(partition_id) or Found(),
                    self._acknowledged.get(partition_id, DONE),
                )
            )
        self._call.reply(
            ShareFetchResponse(
                throttle_time_ms=throttle_ms,
                acquisition_lock_timeout_ms=lock_ms(self._call, self._session.key.group),
                responses=[
                    message(topic_id=topic_id, partitions=items)
                    for topic_id, items in topics.items()
                ],
                node_endpoints=[],
            )
        )


def _partition_data(epoch: int, number: int, found: Found, acknowledged: Outcome) -> Message:
    message = ShareFetchResponse.ShareFetchableTopicResponse.PartitionData
    return message(
        partition_index=number,
        error_code=found.outcome.code,
        error_message=found.outcome.message,
        acknowledge_error_code=acknowledged.code,
        acknowledge_error_message=acknowledged.message,
        current_leader=message.LeaderIdAndEpoch(leader_id=NODE_ID, leader_epoch=epoch),
        records=b"".join(found.delivery.batches),
        acquired_records=[
            message.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in found.delivery.given
        ],
    )
