"""`penstock views` end to end, on Penstock and (marker `compat`) on a real Kafka."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from tests.clients.brokers import Broker
from tests.support.commands import Commands
from tests.support.view_writer import SHAPE, rows

from penstock.client.connection import admin, library
from penstock.views.store import ViewStore, open_store
from penstock.views.version import Commit, Position, State

NOT_FOUND, CONFLICT, USAGE = 3, 5, 2


@pytest.fixture
def cli(broker: Broker, tmp_path: Path) -> Commands:
    commands = Commands(broker.bootstrap)
    commands.environment["PENSTOCK_VIEWS"] = f"sqlite:///{tmp_path}/views.db"
    return commands


@pytest.fixture
def store(cli: Commands) -> ViewStore:
    return open_store(cli.environment["PENSTOCK_VIEWS"])


@pytest.fixture
def topic(cli: Commands) -> str:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    cli.ok("topics", "create", name)
    cli.ok("produce", name, data=b"one\ntwo\nthree\n")
    return name


def build(store: ViewStore, topic: str, begins: Position | None) -> None:
    version = store.begin("totals", SHAPE, begins)
    store.write(version, Commit("q", 0, {topic: {"0": 3}}, 5, 1000), rows(0), [])


def test_what_there_is(cli: Commands, store: ViewStore, topic: str) -> None:
    assert json.loads(cli.ok("views", "list", "--json")) == []
    build(store, topic, {topic: {"0": 0}})
    store.plan_rebuild("totals")
    first, second = json.loads(cli.ok("views", "list", "--json"))
    assert (first["state"], first["position"], first["key"]) == (
        "current",
        {topic: {"0": 3}},
        ["user"],
    )
    assert first["updated"] == "1970-01-01T00:00:01.000000Z"
    assert (second["state"], second["version"], second["columns"]) == ("building", 2, None)
    lines = cli.ok("views", "list").splitlines()
    assert lines[1].split()[:4] == ["totals", "1", "current", "user"]
    assert lines[1].endswith(f"{topic} 0:3")


def test_rows(cli: Commands, store: ViewStore, topic: str) -> None:
    build(store, topic, None)
    asked = ("--where", "user=in.(u1,u2)", "--order", "user.desc", "--limit", "1")
    done = cli.run("views", "show", "totals", *asked)
    assert done.stdout.decode().split() == ["user", "total", "u2", "10"]
    assert f"version 1, up to {topic} 0:3" in done.stderr
    assert "there are more" in done.stderr
    answer = json.loads(cli.ok("views", "show", "totals", *asked, "--json"))
    assert (answer["rows"], answer["more"]) == ([{"user": "u2", "total": 10}], True)
    assert cli.run("views", "show", "other").code == NOT_FOUND
    assert cli.run("views", "show", "totals", "--where", "x=eq.1").code == USAGE


def test_a_rebuild(cli: Commands, store: ViewStore, topic: str) -> None:
    build(store, topic, {topic: {"0": 0}})
    done = cli.run("views", "rebuild", "totals")
    assert "version 2 of totals is built when its query is started next" in done.stderr
    with admin(cli.bootstrap, "delete records") as client:
        client.delete_records({library().TopicPartition(topic, 0): 2})
    refused = cli.run("views", "rebuild", "totals")
    assert refused.code == CONFLICT
    assert f"offsets 0 to 1 of {topic} partition 0 are missing" in refused.stderr
    # What is compacted has the newest of every key.
    cli.ok("topics", "configure", topic, "--set", "cleanup.policy=compact")
    cli.ok("views", "rebuild", "totals")
    states = [(one.number, one.state) for one in store.versions()]
    assert states == [(1, State.CURRENT), (3, State.BUILDING)]


def test_a_rebuild_of_what_nobody_knows_the_beginning_of(
    cli: Commands, store: ViewStore, topic: str
) -> None:
    build(store, topic, None)
    refused = cli.run("views", "rebuild", "totals")
    assert (refused.code, "nobody knows" in refused.stderr) == (CONFLICT, True)
    assert cli.run("views", "rebuild", "other").code == NOT_FOUND


def test_a_view_is_dropped(cli: Commands, store: ViewStore, topic: str) -> None:
    build(store, topic, None)
    refused = cli.run("views", "drop", "totals")
    assert (refused.code, "add --yes" in refused.stderr) == (USAGE, True)
    cli.ok("views", "drop", "totals", "--yes")
    assert store.versions() == []
    assert cli.run("views", "drop", "totals", "--yes").code == NOT_FOUND


def test_a_store_must_be_named(cli: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_VIEWS", raising=False)
    del cli.environment["PENSTOCK_VIEWS"]
    refused = cli.run("views", "list")
    assert (refused.code, "--store" in refused.stderr) == (USAGE, True)
