"""Groups whose members use both protocols, and how they get there and back."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription
from tests.unit.kafka.exchange import Exchange

from penstock.broker.consumer_member import AWAY, JOINING, LEAVING, Beat
from penstock.broker.group import Group
from penstock.broker.group_errors import (
    GroupError,
    IllegalGenerationError,
    InconsistentProtocolError,
    RebalanceInProgressError,
    UnknownGroupError,
    UnknownMemberError,
)
from penstock.broker.group_member import Identity, Joined, JoinRequest, Protocol, Synced
from penstock.broker.mixed_group import MixedGroup
from penstock.kafka.consumer_dialect import ConsumerDialect
from penstock.log.positions import PartitionId

SESSION, REBALANCE = 10.0, 60.0
GROUP, TOPIC = "crew", "orders"
DIALECT = ConsumerDialect()


def metadata(owned: set[int], version: int = 1) -> bytes:
    message = ConsumerProtocolSubscription.TopicPartition
    subscription = ConsumerProtocolSubscription(
        topics=[TOPIC],
        user_data=None,
        owned_partitions=[message(topic=TOPIC, partitions=sorted(owned))] if owned else [],
        generation_id=-1,
        rack_id=None,
    )
    return bytes(subscription.encode(version=version))  # which begins with the version


class Classic:
    """A consumer of the classic protocol; a cooperative one says what it has."""

    def __init__(self, exchange: Exchange, instance_id: str | None = None, **options: bool) -> None:
        self.groups = exchange.broker.groups
        self.exchange = exchange
        self.instance_id = instance_id
        self.cooperative = options.get("cooperative", True)
        self.id, self.generation = "", -1
        self.owned: set[int] = set()
        self.leads = False
        self.answers: list[Any] = []

    @property
    def who(self) -> Identity:
        return Identity(self.id, self.instance_id)

    def request(self, **fields: Any) -> JoinRequest:
        if not self.cooperative:
            self.owned = set()
        settings: dict[str, Any] = {
            "member_id": self.id,
            "instance_id": self.instance_id,
            "client_id": "client",
            "client_host": "/host",
            "session_timeout_ms": int(SESSION * 1000),
            "rebalance_timeout_ms": int(REBALANCE * 1000),
            "protocol_type": "consumer",
            "protocols": (Protocol("sticky", metadata(self.owned)),),
            "must_know_id": False,
        }
        return JoinRequest(**settings | fields)

    def ask(self, **fields: Any) -> None:
        self.groups.join(GROUP, self.request(**fields), self.answers.append)

    def joined(self) -> Joined:
        answer = self.answers.pop()
        if isinstance(answer, GroupError):
            raise answer
        assert isinstance(answer, Joined)
        self.id, self.generation = answer.member_id, answer.generation
        self.leads = answer.leader_id == self.id
        self.members = [member.member_id for member in answer.members]
        return answer

    def join(self, **fields: Any) -> Joined:
        self.ask(**fields)
        self.exchange.timers.advance(0.0)
        return self.joined()

    def sync(self, shares: dict[str, set[int]] | None = None) -> set[int]:
        written = {
            member: DIALECT.assignment((TOPIC, n) for n in share)
            for member, share in (shares or {}).items()
        }
        answers: list[Synced | GroupError] = []
        protocol = (None, None)
        self.groups.sync(GROUP, self.who, self.generation, protocol, written, answers.append)
        (answer,) = answers
        if isinstance(answer, GroupError):
            raise answer
        self.owned = {number for _, number in DIALECT.share(answer.assignment)}
        return self.owned

    def beat(self) -> None:
        self.groups.heartbeat(GROUP, self.who, self.generation)

    def step(self) -> None:
        """What a client does now and then."""
        try:
            if self.generation >= 0:
                self.beat()
                return
        except RebalanceInProgressError:
            pass
        except GroupError:
            self.id, self.generation, self.owned = "", -1, set()
        self.join()
        before = set(self.owned)
        if before - self.sync():
            self.join()
            self.sync()


class Consumer:
    """A consumer of the consumer protocol."""

    def __init__(self, exchange: Exchange, name: str, instance_id: str | None = None) -> None:
        self.groups = exchange.broker.groups
        self.topic_id = exchange.broker.topic(TOPIC).entry.id
        self.id, self.instance_id = name, instance_id
        self.epoch = JOINING
        self.owned: set[int] = set()

    def beat(self, **fields: Any) -> None:
        settings: dict[str, Any] = {
            "member_id": self.id,
            "epoch": self.epoch,
            "instance_id": self.instance_id,
            "rebalance_timeout_ms": int(REBALANCE * 1000),
            "topics": frozenset({TOPIC}),
            "owned": frozenset(PartitionId(self.topic_id, n) for n in self.owned),
        }
        told = self.groups.consumer_heartbeat(GROUP, Beat(**settings | fields))
        self.epoch = told.epoch
        if told.assigned is not None:
            self.owned = {place.partition for place in told.assigned}

    def step(self) -> None:
        try:
            self.beat()
        except GroupError:
            self.epoch, self.owned = JOINING, set()
            self.beat()


@pytest.fixture
def stage(exchange: Exchange) -> Exchange:
    exchange.topic(TOPIC, partitions=4)
    return exchange


def alone(stage: Exchange, **options: Any) -> Classic:
    """A group of one, who leads it and has everything."""
    one = Classic(stage, **options)
    one.join()
    one.sync({one.id: {0, 1, 2, 3}})
    return one


def group(stage: Exchange) -> Any:
    return stage.broker.groups.get(GROUP)


class TestUpgrade:
    def test_nobody_gets_what_another_still_has(self, stage: Exchange) -> None:
        old, new = alone(stage), Consumer(stage, "new")
        new.beat()
        assert isinstance(group(stage), MixedGroup)
        assert (new.owned, old.owned) == (set(), {0, 1, 2, 3})
        with pytest.raises(RebalanceInProgressError):
            old.beat()
        generation = old.join().generation
        kept = set(old.sync())
        assert (generation, len(kept)) == (1, 2)  # it has still to say that it let go
        new.beat()
        assert new.owned == set()
        assert old.join().generation > generation
        assert old.sync() == kept
        new.beat()
        assert new.owned == {0, 1, 2, 3} - kept
        old.beat()

    def test_who_gives_up_all_when_it_joins(self, stage: Exchange) -> None:
        old, new = alone(stage, cooperative=False), Consumer(stage, "new")
        new.beat()
        old.join()
        assert len(old.sync()) == 2
        new.beat()
        assert old.owned | new.owned == {0, 1, 2, 3}

    def test_the_generation_before_counts_until_the_sync(self, stage: Exchange) -> None:
        """A client that reads on while it joins commits before it has got the answer."""
        old, new = alone(stage, cooperative=False), Consumer(stage, "new")
        new.beat()
        check = stage.broker.groups.check_commit
        check(GROUP, old.who, 1, ())
        assert old.join().generation > 1
        check(GROUP, old.who, 1, ())
        check(GROUP, old.who, old.generation, ())
        old.sync()
        check(GROUP, old.who, old.generation, ())
        with pytest.raises(IllegalGenerationError):
            check(GROUP, old.who, 1, ())

    def test_those_who_wait_are_let_in(self, stage: Exchange) -> None:
        """An answer to join again would become an error for the application (librdkafka)."""
        old, second, new = alone(stage), Classic(stage), Consumer(stage, "new")
        second.ask()
        assert second.answers == []
        new.beat()
        second.joined()
        assert second.sync() == set()
        old.step()
        second.step()
        new.beat()
        assert sorted(map(len, (old.owned, second.owned, new.owned))) == [1, 1, 2]

    def test_who_does_not_join_again_is_put_out(self, stage: Exchange) -> None:
        old, new = alone(stage), Consumer(stage, "new")
        new.beat()
        for _ in range(int(REBALANCE / 5) + 1):
            new.beat()
            try:
                old.beat()
            except (RebalanceInProgressError, UnknownMemberError) as error:
                last = error
            stage.timers.advance(5.0)
        assert isinstance(last, UnknownMemberError)
        new.beat()
        assert new.owned == {0, 1, 2, 3}

    def test_its_own_session_counts(self, stage: Exchange) -> None:
        alone(stage)
        new = Consumer(stage, "new")
        new.beat()
        stage.timers.advance(SESSION + 0.1)
        new.beat()
        assert new.owned == {0, 1, 2, 3}

    def test_a_leader_who_gives_things_away_twice(self, stage: Exchange) -> None:
        old, second = Classic(stage), Classic(stage)
        old.ask()
        second.ask()
        stage.timers.advance(0.0)
        old.joined()
        second.joined()
        leader = old if old.leads else second
        leader.sync({old.id: {0, 1, 2}, second.id: {1, 2, 3}})
        new = Consumer(stage, "new")
        for _ in range(4):
            for one in (old, second, new):
                one.step()
        assert sorted([*old.owned, *second.owned, *new.owned]) == [0, 1, 2, 3]

    @pytest.mark.parametrize(
        "fields",
        [
            {"protocol_type": "connect"},
            {"protocols": (Protocol("sticky", b""),)},
            {"protocols": (Protocol("sticky", b"\xff\xff"),)},
        ],
    )
    def test_not_of_groups_that_are_not_understood(
        self, stage: Exchange, fields: dict[str, Any]
    ) -> None:
        old = Classic(stage)
        old.join(**fields)
        with pytest.raises(UnknownGroupError):
            Consumer(stage, "new").beat()
        assert isinstance(group(stage), Group)
        old.sync()
        old.beat()


class TestMixed:
    def test_a_classic_member_joins_a_consumer_group(self, stage: Exchange) -> None:
        first, second = Consumer(stage, "first"), Classic(stage)
        first.beat()
        answer = second.join(must_know_id=False)
        assert (answer.leader_id, answer.members) == ("", ())
        assert second.sync() == set()
        first.beat()
        first.beat()
        with pytest.raises(RebalanceInProgressError):
            second.beat()  # something has become free
        second.join()
        assert len(second.sync()) == 2
        second.beat()

    def test_it_gets_an_id_first(self, stage: Exchange) -> None:
        Consumer(stage, "first").beat()
        second = Classic(stage)
        second.ask(must_know_id=True)
        second.id = second.answers.pop().member_id
        assert second.join(must_know_id=True).member_id == second.id

    @pytest.mark.parametrize(
        "fields",
        [
            {"protocol_type": "connect"},
            {"protocols": ()},
            {"protocols": (Protocol("sticky", b""),)},
            {"protocols": (Protocol("other", metadata(set())),)},
        ],
    )
    def test_who_does_not_fit_in(self, stage: Exchange, fields: dict[str, Any]) -> None:
        alone(stage)
        Consumer(stage, "first").beat()
        with pytest.raises(InconsistentProtocolError):
            Classic(stage).join(**fields)

    def test_members_of_the_other_protocol_are_unknown(self, stage: Exchange) -> None:
        first = Consumer(stage, "first")
        first.beat()
        groups, who = stage.broker.groups, Identity("first")
        with pytest.raises(UnknownMemberError):
            groups.heartbeat(GROUP, who, first.epoch)
        (error,) = groups.leave(GROUP, [who])
        assert isinstance(error, UnknownMemberError)
        with pytest.raises(UnknownMemberError):
            Classic(stage).join(member_id="first")

    def test_a_static_member_changes_its_protocol(self, stage: Exchange) -> None:
        old, other = alone(stage, instance_id="one"), Consumer(stage, "other")
        other.beat()
        new = Consumer(stage, "new", "one")
        new.beat()
        assert new.owned == {0, 1, 2, 3} or len(new.owned) == 2
        with pytest.raises(GroupError):
            old.beat()
        new.beat(epoch=AWAY)
        back = Classic(stage, instance_id="one")
        back.join()
        back.sync()
        for _ in range(3):
            back.step()
            other.step()
        assert sorted([*back.owned, *other.owned]) == [0, 1, 2, 3]


class TestDowngrade:
    def mixed(self, stage: Exchange) -> tuple[Classic, Consumer]:
        old, new = alone(stage), Consumer(stage, "new")
        for _ in range(3):
            new.step()
            old.step()
        return old, new

    def left_alone(self, stage: Exchange, old: Classic) -> None:
        assert isinstance(group(stage), Group)
        stage.broker.groups.check_commit(GROUP, old.who, old.generation, ())
        before = old.generation
        with pytest.raises(RebalanceInProgressError):
            old.beat()
        assert old.join().generation == before + 1
        assert old.leads
        assert old.sync({old.id: {0, 1, 2, 3}}) == {0, 1, 2, 3}
        old.beat()

    def test_when_the_last_consumer_leaves(self, stage: Exchange) -> None:
        old, new = self.mixed(stage)
        new.beat(epoch=LEAVING)
        self.left_alone(stage, old)

    def test_when_its_session_ends(self, stage: Exchange) -> None:
        old, _ = self.mixed(stage)
        for _ in range(10):
            stage.timers.advance(5.0)
            if isinstance(group(stage), MixedGroup):
                old.step()
        self.left_alone(stage, old)

    def test_when_a_classic_one_takes_the_last_place(self, stage: Exchange) -> None:
        new = Consumer(stage, "new", "one")
        new.beat()
        new.beat(epoch=AWAY)
        old = Classic(stage, instance_id="one")
        old.join()
        assert isinstance(group(stage), Group)
        with pytest.raises(RebalanceInProgressError):
            old.sync()
        old.join()
        assert old.leads

    def test_not_when_nobody_is_left(self, stage: Exchange) -> None:
        old, new = self.mixed(stage)
        assert stage.broker.groups.leave(GROUP, [old.who]) == [None]
        new.beat(epoch=LEAVING)
        assert isinstance(group(stage), MixedGroup)
        assert group(stage).is_empty


@pytest.mark.parametrize("seed", range(30))
def test_no_partition_has_two_owners_and_in_the_end_each_has_one(
    stage: Exchange, seed: int
) -> None:
    """One member keeps the group mixed; others of both kinds come, act and go in any order."""
    dice = random.Random(seed)
    anchor = Consumer(stage, "anchor")
    anchor.beat()
    crew: list[Classic | Consumer] = [anchor]
    for number in range(60):
        doing = dice.random()
        if doing < 0.15 and len(crew) < 5:
            crew.append(
                Consumer(stage, f"c{number}")
                if dice.random() < 0.5
                else Classic(stage, cooperative=dice.random() < 0.5)
            )
        elif doing < 0.25 and len(crew) > 1:
            leave(stage, crew.pop(dice.randrange(1, len(crew))))
        else:
            dice.choice(crew).step()
        held = [number for one in crew for number in one.owned]
        assert len(held) == len(set(held)), held
    for _ in range(8):
        for one in crew:
            one.step()
    assert sorted(number for one in crew for number in one.owned) == [0, 1, 2, 3]
    assert group(stage).state.value == "Stable"


def leave(stage: Exchange, one: Classic | Consumer) -> None:
    if isinstance(one, Consumer):
        if one.epoch != JOINING:
            one.beat(epoch=LEAVING)
    elif one.id:
        stage.broker.groups.leave(GROUP, [one.who])


class TestDialect:
    @pytest.mark.parametrize("version", range(4))
    def test_what_consumers_say(self, version: int) -> None:
        found = DIALECT.subscription(metadata({2, 1}, version))
        assert found.topics == {TOPIC}
        assert found.owned == ({(TOPIC, 1), (TOPIC, 2)} if version else set())

    def test_a_version_that_is_not_known(self) -> None:
        data = struct.pack(">h", 9) + metadata({1}, 3)[2:] + b"more"
        assert DIALECT.subscription(data).owned == {(TOPIC, 1)}

    def test_shares(self) -> None:
        share = {("a", 0), ("a", 3), ("b", 1)}
        assert DIALECT.share(DIALECT.assignment(share)) == share
        assert DIALECT.share(DIALECT.assignment([])) == DIALECT.share(b"") == set()

    @pytest.mark.parametrize(
        "data", [b"", b"\0", b"\xff\xff", b"\0\1\0\0\0\5ab", b"\0\0\xff\xff\xff\xfe"]
    )
    def test_what_cannot_be_read(self, data: bytes) -> None:
        with pytest.raises(ValueError, match="ConsumerProtocolSubscription"):
            DIALECT.subscription(data)
