"""Fixtures of the client tests.

Every test takes `broker` and so runs on Penstock and on a real Kafka, with the same assertions.
Only `test_smoke` of each client, on Penstock, is free of the marker `compat`; `-k on-penstock` and
`-k on-kafka` select one broker.
"""

from __future__ import annotations

import contextlib
import functools
import re
import uuid
from collections.abc import Callable, Iterator, Mapping

import pytest
from kafka.protocol.consumer import HeartbeatRequest
from tests.clients.admin_requests import find_coordinator
from tests.clients.brokers import RUNNERS, Broker
from tests.clients.contract import MakeTopic, NewName, eventually
from tests.clients.wire import Wire


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Broker]]:
    """The brokers by name, each started when it is first asked for."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(
            lambda name: stack.enter_context(RUNNERS[name](tmp_path_factory.mktemp(name)))
        )


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("penstock", id="on-penstock"),
        pytest.param("kafka", id="on-kafka", marks=pytest.mark.compat),
    ],
)
def broker(request: pytest.FixtureRequest, brokers: Callable[[str], Broker]) -> Broker:
    return brokers(request.param)


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with broker.wire() as connection:
        yield connection


@pytest.fixture
def new_name(request: pytest.FixtureRequest) -> NewName:
    """Names of topics that do not exist yet and tell which test they are from."""
    test = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.originalname)[:60]
    return lambda: f"{test}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def make_topic(wire: Wire, new_name: NewName) -> MakeTopic:
    """Create topics, ready to use."""

    def make(partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        name = new_name()
        wire.create_topic(name, partitions, configs)
        return name

    return make


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    """A topic with one partition and default settings."""
    return make_topic()


@pytest.fixture
def group(wire: Wire, new_name: NewName) -> str:
    """A name for a group, when the broker is ready to coordinate it; Kafka makes a topic first."""
    name = new_name()
    busy = {14, 15, 16}  # the coordinator is loading, not available, or another

    def ready() -> bool | None:
        (found,) = wire.call(find_coordinator(name), 4).coordinators
        if found.error_code:
            return None
        heartbeat = HeartbeatRequest(group_id=name, generation_id=0, member_id="")
        return wire.call(heartbeat).error_code not in busy or None

    eventually(ready, "a coordinator")
    return name
