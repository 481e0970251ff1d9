"""A consumer group with a clock moved by hand, and members that do what real ones do."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from tests.support.timers import ManualTimers

from penstock.broker.assignors import NOTHING, Share
from penstock.broker.consumer_group import ConsumerGroup, check
from penstock.broker.consumer_member import AWAY, JOINING, LEAVING, Beat, Told
from penstock.broker.group_errors import FencedMemberEpochError, GroupError, UnknownMemberError
from penstock.broker.topic_directory import TopicDirectory
from penstock.limits import CONSUMER_SESSION_SECONDS
from penstock.testing.clock import ManualClock

REBALANCE = 60.0


class Fleet:
    """The group, its topics, and the time."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.topics = TopicDirectory()
        self.occupied: list[bool] = []
        self.group = ConsumerGroup(
            "crew",
            self.clock,
            self.timers,
            self.topics,
            lambda: CONSUMER_SESSION_SECONDS,
            lambda group: self.occupied.append(group.is_empty),
        )
        self._ids = 0

    def topic(self, name: str = "orders", partitions: int = 4) -> UUID:
        """Make a topic, or let it grow."""
        known = self.topics.get(name)
        self._ids += 1
        topic_id = UUID(int=self._ids) if known is None else known.id
        self.topics.put(name, topic_id, partitions)
        return topic_id

    def consumer(self, name: str, *topics: str, **about: object) -> Consumer:
        return Consumer(self, name, frozenset(topics or ("orders",)), **about)  # type: ignore[arg-type]

    def wait(self, seconds: float) -> None:
        self.timers.advance(seconds)

    def settle(self, *consumers: Consumer) -> None:
        """As many heartbeats as it takes."""
        for _ in range(4):
            for consumer in consumers:
                consumer.step()


@dataclass
class Consumer:
    """One process: joins, uses what it is given, lets go when told, and says so."""

    fleet: Fleet
    id: str
    topics: frozenset[str]
    instance_id: str | None = None
    pattern: str | None = None
    assignor: str | None = None
    epoch: int = JOINING
    owned: Share = NOTHING
    told: Share = NOTHING
    unsure: bool = False
    errors: list[GroupError] = field(default_factory=list)

    def beat(self, **fields: object) -> Told:
        """One heartbeat as it is, without consequences."""
        settings: dict[str, object] = {
            "member_id": self.id,
            "epoch": self.epoch,
            "instance_id": self.instance_id,
        }
        if self.epoch == JOINING or self.unsure:
            settings |= {
                "rebalance_timeout_ms": round(REBALANCE * 1000),
                "topics": self.topics,
                "pattern": self.pattern,
                "assignor": self.assignor,
                "owned": self.owned,
            }
        beat = Beat(**settings | fields)  # type: ignore[arg-type]
        check(beat)
        return self.fleet.group.heartbeat(beat)

    def hear(self, **fields: object) -> None:
        """One heartbeat, and what follows from the answer."""
        try:
            told = self.beat(**fields)
        except (UnknownMemberError, FencedMemberEpochError) as error:
            self.errors.append(error)
            self.epoch, self.owned, self.told, self.unsure = JOINING, NOTHING, NOTHING, False
            return
        self.id, self.epoch, self.unsure = told.member_id, told.epoch, False
        if told.assigned is not None:
            self.told = told.assigned

    def lose(self) -> None:
        """One heartbeat of which the answer is lost, so that the next one has to say everything."""
        with suppress(UnknownMemberError, FencedMemberEpochError):
            self.beat(owned=self.owned)
        self.unsure = True

    def apply(self) -> None:
        """Let go of what is no longer ours, and begin with what is new."""
        self.owned = self.told

    def step(self) -> None:
        """A heartbeat that says what we have, and its consequences."""
        if self.epoch == JOINING:
            self.hear()
        else:
            self.hear(owned=self.owned)
        self.apply()

    def leave(self) -> None:
        self.beat(epoch=LEAVING)
        self.epoch, self.owned, self.told = JOINING, NOTHING, NOTHING

    def pause(self) -> None:
        """Stop as a static member does that will be back."""
        self.beat(epoch=AWAY)
        self.epoch, self.owned, self.told = JOINING, NOTHING, NOTHING

    @property
    def partitions(self) -> list[int]:
        return sorted(partition.partition for partition in self.owned)
