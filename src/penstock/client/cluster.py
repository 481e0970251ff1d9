"""Partitions of a cluster, where they start and end, and their batches as they are stored.

Every request goes to the broker that leads the partition. A leader that moved or a broker that went
away is looked for again until a deadline, and only then an error.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeVar

from penstock.client.connection import error_of_code, library, parse_bootstrap
from penstock.client.link import Link
from penstock.client.produce_request import PRODUCE, produce_request
from penstock.client.security import OPEN, Security
from penstock.config import Address
from penstock.errors import NotFoundError, PenstockError, UnavailableError

LATEST: Final = -1
EARLIEST: Final = -2
OFFSET_OUT_OF_RANGE: Final = 1
# The versions that name topics: ids would have to be asked for first, and say nothing more here.
_METADATA, _LIST_OFFSETS, _FETCH = 12, 8, 12
_FIND_COORDINATOR = 3  # the last that asks for one id
_TRANSACTIONS = 1
_UNKNOWN_TOPIC = 3
# Leader not available, not the leader, replica not available, coordinator or broker starting,
# fenced or unknown leader epoch, listener not found, storage error.
_PASSING: Final = frozenset({5, 6, 9, 15, 56, 72, 74, 76})
# Timed out; too few replicas, before or after it was written.
_NOT_WRITTEN_YET: Final = frozenset({7, 19, 20})
_RETRY_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.1
_ALL_TOPICS: Final = None
_T = TypeVar("_T")


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic} partition {self.partition}"


class Fetched(NamedTuple):
    """What stands at an offset."""

    batches: bytes
    """Whole batches, the first of which may begin before the offset, and a part of one more."""
    readable: int
    """Where readers have to stop: the last stable offset, or the high watermark."""
    aborted: list[tuple[int, int]]
    """Producer id and first offset of aborted transactions in it."""


class OutOfRangeError(PenstockError):
    """An offset that is no longer, or not yet, in the log."""


class Cluster:
    """See the module; not for several threads.

    Args:
        bootstrap: addresses, HOST:PORT, separated by commas.
        operation: what it is needed for, for the errors.
        committed: whether transactions that did not commit are left out.
        security: TLS and who asks.
    """

    def __init__(
        self, bootstrap: str, operation: str, *, committed: bool, security: Security = OPEN
    ) -> None:
        self._security = security
        self._bootstrap = parse_bootstrap(bootstrap)
        self._operation = operation
        self._committed = committed
        self._links: dict[Address, Link] = {}
        self._leaders: dict[Place, Address] = {}
        self._coordinators: dict[str, Address] = {}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all connections."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    # -- what there is

    def topics(self) -> list[str]:
        """The names of all topics that are not the cluster's own."""
        answer = self._patiently(lambda: self._metadata(_ALL_TOPICS))
        return sorted(one.name for one in answer.topics if not one.is_internal)

    def partitions(self, topics: Iterable[str]) -> list[Place]:
        """All partitions of topics.

        Raises:
            NotFoundError: there is no topic of one of the names.
        """
        return self._patiently(lambda: self._look_up(sorted(set(topics))))

    def offsets(self, wanted: Mapping[Place, int]) -> dict[Place, int]:
        """The offset for a time in milliseconds, or for EARLIEST or LATEST, of each partition.

        Where all records are older than the time there is none, and the partition is left out.
        """
        return self._patiently(lambda: self._list_offsets(wanted))

    def fetch(self, place: Place, offset: int, *, bytes_max: int, wait_ms: int) -> Fetched:
        """What stands at an offset of a partition, once there is something.

        Raises:
            OutOfRangeError: the offset is not in the log.
        """
        return self._patiently(lambda: self._fetch(place, offset, bytes_max, wait_ms))

    def append(self, place: Place, batch: bytes) -> None:
        """Append a batch outside of any transaction, and once more if no answer comes.

        So it is there when this returns, and may be there twice.
        """
        self._patiently(lambda: self._append(place, batch))

    # -- requests of others

    def ask_leader(self, place: Place, request: Any, newest: int) -> Any:
        """Ask whoever leads a partition, once: what changes something must not be sent again.

        Raises:
            UnavailableError: there is no answer; it may have been done all the same.
        """
        leader = self._patiently(lambda: self._leader(place))
        return self._link(leader).ask(request, newest)

    def ask_coordinator(self, name: str, request: Any, newest: int) -> Any:
        """Ask whoever coordinates the transactions of an id, and again if the connection breaks.

        Raises:
            UnavailableError: there is no answer; it may have been done all the same.
        """
        return self._patiently(lambda: self._coordinator(name).ask(request, newest))

    def forget_coordinator(self, name: str) -> None:
        """Look for it anew: the one that was asked says that it is not."""
        self._coordinators.pop(name, None)

    def _coordinator(self, name: str) -> Link:
        if name not in self._coordinators:
            request = library("kafka.protocol.metadata").FindCoordinatorRequest(
                key=name, key_type=_TRANSACTIONS
            )
            answer = self._anyone().ask(request, _FIND_COORDINATOR)
            self._check(answer.error_code, f"the transactions of {name}")
            self._coordinators[name] = Address(answer.host, answer.port)
        return self._link(self._coordinators[name])

    # -- requests

    def _metadata(self, topics: list[str] | None) -> Any:
        messages = library("kafka.protocol.metadata")
        named = messages.MetadataRequest.MetadataRequestTopic
        request = messages.MetadataRequest(
            topics=topics and [named(topic_id=uuid.UUID(int=0), name=name) for name in topics],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        return self._anyone().ask(request, _METADATA)

    def _look_up(self, topics: list[str]) -> list[Place]:
        if not topics:
            return []
        answer = self._metadata(topics)
        brokers = {one.node_id: Address(one.host, one.port) for one in answer.brokers}
        found: list[Place] = []
        for topic in answer.topics:
            if topic.error_code == _UNKNOWN_TOPIC:
                cause = f"there is no topic {topic.name}"
                raise NotFoundError(self._operation, cause, "create it, or write to it first")
            self._check(topic.error_code, topic.name)
            for one in topic.partitions:
                place = Place(topic.name, one.partition_index)
                found.append(place)
                if one.leader_id in brokers:
                    self._leaders[place] = brokers[one.leader_id]
        return sorted(found)

    def _list_offsets(self, wanted: Mapping[Place, int]) -> dict[Place, int]:
        by_leader: dict[Address, dict[Place, int]] = {}
        for place, at in wanted.items():
            by_leader.setdefault(self._leader(place), {})[place] = at
        found: dict[Place, int] = {}
        for leader, places in by_leader.items():
            answer = self._link(leader).ask(self._offsets_request(places), _LIST_OFFSETS)
            for topic in answer.topics:
                for one in topic.partitions:
                    place = Place(topic.name, one.partition_index)
                    self._check(one.error_code, str(place))
                    if one.offset >= 0:
                        found[place] = one.offset
        return found

    def _offsets_request(self, places: Mapping[Place, int]) -> Any:
        messages = library("kafka.protocol.consumer")
        listed = messages.ListOffsetsRequest.ListOffsetsTopic
        asked: dict[str, list[Any]] = {}
        for place, at in places.items():
            one = listed.ListOffsetsPartition(
                partition_index=place.partition, current_leader_epoch=-1, timestamp=at
            )
            asked.setdefault(place.topic, []).append(one)
        return messages.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(self._committed),
            topics=[listed(name=name, partitions=some) for name, some in asked.items()],
        )

    def _fetch(self, place: Place, offset: int, bytes_max: int, wait_ms: int) -> Fetched:
        request = self._fetch_request(place, offset, bytes_max, wait_ms)
        answer = self._link(self._leader(place)).ask(request, _FETCH)
        self._check(answer.error_code, str(place))
        ((one,),) = (topic.partitions for topic in answer.responses)
        if one.error_code == OFFSET_OUT_OF_RANGE:
            raise OutOfRangeError(self._operation, f"{place} has no offset {offset}")
        self._check(one.error_code, str(place))
        readable = one.last_stable_offset if self._committed else one.high_watermark
        aborted = [(each.producer_id, each.first_offset) for each in one.aborted_transactions or ()]
        return Fetched(bytes(one.records or b""), readable, aborted)

    def _fetch_request(self, place: Place, offset: int, bytes_max: int, wait_ms: int) -> Any:
        messages = library("kafka.protocol.consumer")
        fetched = messages.FetchRequest.FetchTopic
        partition = fetched.FetchPartition(
            partition=place.partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=bytes_max,
        )
        return messages.FetchRequest(
            replica_id=-1,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=bytes_max,
            isolation_level=int(self._committed),
            session_id=0,
            session_epoch=-1,
            topics=[fetched(topic=place.topic, partitions=[partition])],
            forgotten_topics_data=[],
            rack_id="",
        )

    def _append(self, place: Place, batch: bytes) -> None:
        answer = self.ask_leader(place, produce_request(place, batch, None), PRODUCE)
        ((one,),) = (topic.partition_responses for topic in answer.responses)
        if one.error_code in _NOT_WRITTEN_YET:
            raise UnavailableError(self._operation, f"{place} took no batch ({one.error_code})")
        self._check(one.error_code, str(place))

    # -- whom to ask

    def _patiently(self, attempt: Callable[[], _T]) -> _T:
        """Try again after an error that passes, until it has lasted for too long."""
        deadline = time.monotonic() + _RETRY_SECONDS
        while True:
            try:
                return attempt()
            except UnavailableError:
                if time.monotonic() > deadline:
                    raise
            # Where the trouble was is not known: everything is asked for anew.
            self.close()
            self._leaders.clear()
            self._coordinators.clear()
            time.sleep(_PAUSE_SECONDS)

    def _check(self, code: int, what: str) -> None:
        if code in _PASSING:
            raise UnavailableError(self._operation, f"{what} has no leader (error {code})")
        if code:
            raise error_of_code(self._operation, code, None)

    def _leader(self, place: Place) -> Address:
        if place not in self._leaders:
            self._look_up([place.topic])
        if place not in self._leaders:
            raise UnavailableError(self._operation, f"{place} has no leader")
        return self._leaders[place]

    def _link(self, address: Address) -> Link:
        if address not in self._links:
            self._links[address] = Link(address, self._operation, self._security)
        return self._links[address]

    def _anyone(self) -> Link:
        """A connection to whichever of the bootstrap addresses answers."""
        for link in self._links.values():
            return link
        trouble: UnavailableError | None = None
        for address in self._bootstrap:
            try:
                return self._link(address)
            except UnavailableError as error:
                trouble = error
        assert trouble is not None
        raise trouble
