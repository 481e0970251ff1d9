"""A group with a clock moved by hand, and clients that remember what they were told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.support.timers import ManualTimers

from penstock.broker.group import Group, State
from penstock.broker.group_errors import GroupError, MemberIdRequiredError
from penstock.broker.group_member import (
    Identity,
    Joined,
    JoinRequest,
    Protocol,
    Synced,
)
from penstock.testing.clock import ManualClock

SESSION = 10.0
REBALANCE = 60.0
RANGE = (Protocol("range", b"subscription"),)


@dataclass
class Client:
    """One process of an application."""

    crowd: Crowd
    name: str
    instance_id: str | None = None
    id: str = ""
    protocols: tuple[Protocol, ...] = RANGE
    protocol_type: str = "consumer"
    must_know_id: bool = True
    may_skip_assignment: bool = True
    joins: list[Joined | GroupError] = field(default_factory=list)
    syncs: list[Synced | GroupError] = field(default_factory=list)

    @property
    def who(self) -> Identity:
        return Identity(self.id, self.instance_id)

    @property
    def joined(self) -> Joined:
        """The last answer to a join."""
        answer = self.joins[-1]
        assert isinstance(answer, Joined), answer
        return answer

    @property
    def leads(self) -> bool:
        return self.joined.leader_id == self.id

    def ask(self) -> None:
        """Send a join."""
        request = JoinRequest(
            member_id=self.id,
            instance_id=self.instance_id,
            client_id=self.name,
            client_host="/127.0.0.1",
            session_timeout_ms=round(SESSION * 1000),
            rebalance_timeout_ms=round(REBALANCE * 1000),
            protocol_type=self.protocol_type,
            protocols=self.protocols,
            must_know_id=self.must_know_id,
            may_skip_assignment=self.may_skip_assignment,
        )
        self.crowd.group.join(request, self._told)

    def _told(self, answer: Joined | GroupError) -> None:
        self.joins.append(answer)
        if isinstance(answer, Joined | MemberIdRequiredError):
            self.id = answer.member_id

    def join(self) -> None:
        """As clients do: ask, and ask again with the id they got."""
        self.ask()
        if self.joins and isinstance(self.joins[-1], MemberIdRequiredError):
            self.joins.clear()
            self.ask()

    def sync(
        self,
        assignments: dict[str, bytes] | None = None,
        generation: int | None = None,
        protocol: tuple[str | None, str | None] = (None, None),
    ) -> None:
        generation = self.crowd.group.generation if generation is None else generation
        self.crowd.group.sync(self.who, generation, protocol, assignments or {}, self.syncs.append)

    def beat(self, generation: int | None = None) -> GroupError | None:
        """What a heartbeat is told, if it is told anything."""
        try:
            self.crowd.group.heartbeat(
                self.who, self.joined.generation if generation is None else generation
            )
        except GroupError as error:
            return error
        return None

    def leave(self) -> GroupError | None:
        (result,) = self.crowd.group.leave([self.who])
        return result


class Crowd:
    """The group, and the time."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.occupied: list[State] = []
        self.group = Group(
            "crew", self.clock, self.timers, lambda group: self.occupied.append(group.state)
        )

    def client(self, name: str, **about: object) -> Client:
        return Client(self, name, **about)  # type: ignore[arg-type]

    def wait(self, seconds: float = 0.0) -> None:
        self.timers.advance(seconds)

    def pass_time(self, seconds: float, alive: Iterable[Client] = ()) -> None:
        """Let time pass while some send heartbeats."""
        for _ in range(round(seconds)):
            self.wait(1.0)
            for client in alive:
                client.beat()

    def settle(self, *clients: Client) -> None:
        """All of them join, and get their share from the leader."""
        for client in clients:
            client.join()
        self.wait()
        self.share(*clients)

    def share(self, *clients: Client) -> None:
        """Everybody asks for a share; it is the member's name."""
        for client in clients:
            if not client.leads:
                client.sync()
        (leader,) = [client for client in clients if client.leads]
        leader.sync({client.id: client.name.encode() for client in clients})
        assert self.group.state is State.STABLE
