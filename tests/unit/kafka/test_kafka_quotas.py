"""DescribeClientQuotas, AlterClientQuotas, and what they do to Produce and Fetch."""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest
from tests.clients.wire import fetch_request, produce_request
from tests.unit.kafka.exchange import CLIENT, DATA, NOW, Exchange, answer, versions

from penstock.broker.quotas import Budget
from penstock.kafka.errors import Code
from penstock.limits import QUOTA_REST_SECONDS_MAX
from penstock.record.encode import NewRecord, encode
from penstock.testing.faulty import Crash, FaultyFiles
from penstock.testing.power_failure import Keep

WRITE, READ = "producer_byte_rate", "consumer_byte_rate"


def alter(
    client_id: str | None,
    rates: dict[str, float | None],
    *,
    kind: str = "client-id",
    validate_only: bool = False,
) -> Any:
    entry = AlterClientQuotasRequest.EntryData
    changes = [
        entry.OpData(key=key, value=rate or 0.0, remove=rate is None) for key, rate in rates.items()
    ]
    entity = [entry.EntityData(entity_type=kind, entity_name=client_id)]
    return AlterClientQuotasRequest(
        entries=[entry(entity=entity, ops=changes)], validate_only=validate_only
    )


def describe(*components: tuple[str, int, str | None], strict: bool = False) -> Any:
    part = DescribeClientQuotasRequest.ComponentData
    return DescribeClientQuotasRequest(
        components=[
            part(entity_type=kind, match_type=how, match=match) for kind, how, match in components
        ],
        strict=strict,
    )


def described(response: Any) -> dict[str | None, dict[str, float]]:
    assert response.error_code == Code.NONE
    found = {}
    for entry in response.entries:
        (entity,) = entry.entity
        assert entity.entity_type == "client-id"
        found[entity.entity_name] = {one.key: one.value for one in entry.values}
    return found


def code(response: Any) -> int:
    (entry,) = response.entries
    assert bool(entry.error_message) == bool(entry.error_code)
    return int(entry.error_code)


@pytest.mark.parametrize("version", versions(49))
def test_set_change_remove(exchange: Exchange, version: int) -> None:
    assert described(exchange.send(describe(), version)) == {}
    assert code(exchange.send(alter("a", {WRITE: 1000.0, READ: 2000.0}), version)) == Code.NONE
    assert code(exchange.send(alter(None, {WRITE: 500.0}), version)) == Code.NONE
    assert code(exchange.send(alter("a", {WRITE: None, READ: 3000.0}), version)) == Code.NONE
    rates = {"a": {READ: 3000.0}, None: {WRITE: 500.0}}
    assert described(exchange.send(describe(), version)) == rates
    exchange.open()
    assert described(exchange.send(describe(), version)) == rates
    assert exchange.broker.quotas.active
    exchange.send(alter("a", {READ: None}), version)
    exchange.send(alter(None, {WRITE: None}), version)
    assert described(exchange.send(describe(), version)) == {}
    assert not exchange.broker.quotas.active


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([("client-id", 0, "a")], False, {"a"}),
        ([("client-id", 0, "x")], False, set()),
        ([("client-id", 1, None)], False, {None}),
        ([("client-id", 2, None)], True, {"a", "b", None}),
        ([("user", 2, None)], False, set()),
        ([("user", 1, None), ("client-id", 2, None)], False, set()),
        ([], True, set()),
    ],
)
def test_filters(
    exchange: Exchange, components: list[Any], strict: bool, found: set[str | None]
) -> None:
    for name in ("a", "b", None):
        exchange.send_highest(alter(name, {WRITE: 1.0}))
    answer = exchange.send_highest(describe(*components, strict=strict))
    assert set(described(answer)) == found


@pytest.mark.parametrize(
    "component", [("x", 0, "a"), ("client-id", 3, None), ("client-id", 0, None), ("user", 1, "a")]
)
def test_filters_that_are_none(exchange: Exchange, component: Any) -> None:
    assert exchange.send_highest(describe(component)).error_code == Code.INVALID_REQUEST


@pytest.mark.parametrize(
    "request_",
    [
        alter("a", {"request_percentage": 10.0}),
        alter("a", {WRITE: 0.5}),
        alter("a", {WRITE: -1.0}),
        alter("a", {WRITE: float("inf")}),
        alter("a", {WRITE: float("nan")}),
        alter("a", {WRITE: 1.0}, kind="user"),
        alter("a", {WRITE: 1.0}, kind="ip"),
    ],
)
def test_refusals(exchange: Exchange, request_: Any) -> None:
    assert code(exchange.send_highest(request_)) == Code.INVALID_REQUEST
    assert described(exchange.send_highest(describe())) == {}


def test_validate_only(exchange: Exchange) -> None:
    assert code(exchange.send_highest(alter("a", {WRITE: 1.0}, validate_only=True))) == Code.NONE
    bad = alter("a", {WRITE: 0.0}, validate_only=True)
    assert code(exchange.send_highest(bad)) == Code.INVALID_REQUEST
    assert described(exchange.send_highest(describe())) == {}


# -- durability


def test_answered_when_durable(exchange: Exchange) -> None:
    slot = exchange.begin(request := alter("a", {WRITE: 1.0}), 1)
    assert slot.data is None
    exchange.drain()
    assert code(answer(request, 1, slot)) == Code.NONE


def test_not_durable(exchange: Exchange) -> None:
    exchange.files.fail("sync", errno.EIO, sticky=True)
    assert code(exchange.send_highest(alter("a", {WRITE: 1.0}))) == Code.KAFKA_STORAGE_ERROR


@pytest.fixture
def small_catalog(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The journal is rewritten several times within a history."""
    monkeypatch.setattr("penstock.log.catalog._REWRITE_BYTES", 100)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def crashed(at: int | None, *, unsafe: bool = False) -> tuple[FaultyFiles, int, int]:
    """A history of one quota's changes; the last rate that was promised, and the last asked for."""
    files = FaultyFiles(random.Random(1))
    files.make_folder(DATA)
    files.sync_all(DATA)
    exchange = Exchange(files)
    files.sync_is_noop = unsafe
    files.crash_at = None if at is None else files.operations + at
    promised = asked = 0
    try:
        for rate in range(1, 25):
            asked = rate
            if code(exchange.send_highest(alter("a", {WRITE: float(rate)}))) == Code.NONE:
                promised = rate
    except Crash:
        pass
    return files, promised, asked


def kept(files: FaultyFiles) -> int:
    rates = described(Exchange(files).send_highest(describe()))
    return int(rates.get("a", {}).get(WRITE, 0))


@pytest.mark.usefixtures("small_catalog")
@pytest.mark.parametrize("policy", Keep)
def test_what_was_promised_survives_a_crash_at_every_operation(policy: Keep) -> None:
    whole, promised, _ = crashed(None)
    assert promised == 24
    assert any("catalog.journal.tmp" in line for line in whole.trace), "never rewritten"
    for at in range(1, whole.operations):
        files, promised, asked = crashed(at)
        if not files.crashed:
            break
        after = files.after_crash(policy, random.Random(at))
        assert promised <= kept(after) <= asked, f"crash at {at}"


@pytest.mark.usefixtures("small_catalog")
def test_the_test_above_can_fail() -> None:
    lost = 0
    for at in range(5, 60, 5):
        files, promised, _ = crashed(at, unsafe=True)
        after = files.after_crash(Keep.NOTHING, random.Random(at))
        lost += kept(after) < promised
    assert lost


# -- what quotas do


def test_budget() -> None:
    budget = Budget(100.0, now=0.0)
    assert budget.take(100, 0.0) == 0
    assert budget.take(50, 0.0) == 0.5
    assert budget.take(0, 0.5) == 0
    # It fills up to a second's worth, however long nobody takes anything.
    assert budget.take(150, 1000.0) == 0.5
    assert budget.take(10**9, 1000.0) == QUOTA_REST_SECONDS_MAX


def batch(size: int) -> bytes:
    return bytes(encode([NewRecord(b"v" * size, None, NOW)]))


@pytest.mark.parametrize("version", versions(0))
def test_a_producer_rests(exchange: Exchange, version: int) -> None:
    topic = exchange.topic("a")
    exchange.send_highest(alter(CLIENT, {WRITE: 1000.0}))
    data = batch(3000)
    request = produce_request("a", {0: data}, topic_id=topic.entry.id)
    slot = exchange.begin(request, version)
    exchange.drain()
    rest = (len(data) - 1000) / 1000
    assert slot.rested == pytest.approx(rest)
    assert answer(request, version, slot).throttle_time_ms == pytest.approx(rest * 1000, abs=1)
    exchange.clock.advance(rest + 1)
    small = exchange.begin(produce_request("a", {0: batch(10)}, topic_id=topic.entry.id), version)
    assert small.rested == 0


@pytest.mark.parametrize("version", versions(1))
def test_a_consumer_rests(exchange: Exchange, version: int) -> None:
    topic = exchange.topic("a")
    for _ in range(10):
        exchange.broker.appender.append(topic, topic.partition(0), bytearray(batch(600)))
    exchange.drain()
    exchange.send_highest(alter(CLIENT, {READ: 1000.0}))
    taken = 0
    for offset in (0, 1):
        request = fetch_request("a", {0: offset}, topic_id=topic.entry.id)
        slot = exchange.begin(request, version)
        response = answer(request, version, slot)
        ((partition,),) = [one.partitions for one in response.responses]
        assert len(partition.records) == 1000  # a second's worth, and no more
        taken += len(partition.records)
        assert slot.rested == pytest.approx((taken - 1000) / 1000)
        assert response.throttle_time_ms == pytest.approx(slot.rested * 1000, abs=1)


def test_whose_quota_it_is(exchange: Exchange) -> None:
    exchange.send_highest(alter(None, {WRITE: 100.0}))
    exchange.send_highest(alter("a", {WRITE: 200.0}))
    exchange.send_highest(alter("b", {READ: 300.0}))
    quotas = exchange.broker.quotas

    def rate(name: str, kind: str) -> float | None:
        budget = quotas.budget(name, kind)
        return None if budget is None else budget.rate

    assert [rate(name, WRITE) for name in ("a", "b", "c", "")] == [200, 100, 100, 100]
    assert [rate(name, READ) for name in ("a", "b", "c")] == [None, 300, None]
    assert quotas.budget("a", WRITE) is quotas.budget("a", WRITE)
    assert quotas.budget("b", WRITE) is not quotas.budget("c", WRITE)


def test_budgets_are_not_kept_for_ever(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker.quotas.QUOTA_BUDGETS_MAX", 2)
    exchange.send_highest(alter(None, {WRITE: 100.0}))
    quotas = exchange.broker.quotas
    first = quotas.budget("a", WRITE)
    assert quotas.budget("b", WRITE) is not first
    assert quotas.budget("a", WRITE) is first
    quotas.budget("c", WRITE)
    assert quotas.budget("a", WRITE) is first
