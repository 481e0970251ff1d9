"""`penstock groups` end to end, on Penstock and (marker `compat`) on a real Kafka."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    KafkaError,
    KafkaException,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from tests.clients.brokers import Broker
from tests.support.commands import Commands

from penstock.client.connection import admin, library

SECONDS_MAX = 60.0


@pytest.fixture
def cli(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Commands run in a folder of their own: they write undo files there."""
    monkeypatch.chdir(tmp_path)
    return Commands(broker.bootstrap)


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(cli: Commands) -> str:
    """A topic with 10 records in the first of its two partitions, the middle one of 2020."""
    name = f"groups-{uuid.uuid4().hex[:8]}"
    cli.ok("topics", "create", name, "--partitions", "2")
    cli.ok("topics", "configure", name, "--set", "retention.ms=-1")
    times = ["2019-06-01T00:00:00Z"] * 5 + ["2020-06-01T00:00:00Z"] * 5
    lines = [{"value": "x", "partition": 0, "timestamp": one} for one in times]
    cli.ok(
        "produce", name, "--json", data="".join(json.dumps(one) + "\n" for one in lines).encode()
    )
    return name


def commit(cli: Commands, group: str, topic: str, *offsets: int) -> None:
    """As a consumer without members would: offsets of the partitions in order."""
    consumer = Consumer({"bootstrap.servers": cli.bootstrap, "group.id": group})
    places = [TopicPartition(topic, index, offset) for index, offset in enumerate(offsets)]
    until = time.monotonic() + SECONDS_MAX
    while True:
        try:
            consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            # A Kafka that was just started has not loaded its offsets topic yet.
            if error.args[0].code() != KafkaError.NOT_COORDINATOR or time.monotonic() > until:
                raise
        else:
            break
    consumer.close()


@contextlib.contextmanager
def member(cli: Commands, group: str, topic: str, **settings: Any) -> Iterator[Consumer]:
    """A consumer that owns all partitions while the block runs."""
    config = {"bootstrap.servers": cli.bootstrap, "group.id": group, "client.id": "reader"}
    consumer = Consumer({**config, "enable.auto.commit": False, **settings})
    consumer.subscribe([topic])
    until = time.monotonic() + SECONDS_MAX
    while not consumer.assignment() and time.monotonic() < until:
        consumer.poll(0.1)
    try:
        yield consumer
    finally:
        consumer.close()


def described(cli: Commands, group: str) -> list[dict[str, Any]]:
    partitions = json.loads(cli.ok("groups", "describe", group, "--json"))["partitions"]
    assert isinstance(partitions, list)
    return partitions


def standing(cli: Commands, group: str) -> list[int | None]:
    """The committed offsets, partition by partition."""
    return [one["committed"] for one in described(cli, group)]


def delete_before(cli: Commands, topic: str, offset: int) -> None:
    with admin(cli.bootstrap, "delete records") as client:
        client.delete_records({library().TopicPartition(topic, 0): offset})


# -- list and describe


def test_list(cli: Commands, topic: str, group: str) -> None:
    commit(cli, group, topic, 3)
    facts = json.loads(cli.ok("groups", "list", "--json"))
    assert {"name": group, "type": "classic", "state": "Empty", "members": 0} in facts
    with member(cli, group, topic):
        text = cli.ok("groups", "list")
        assert text.startswith("GROUP")
        assert re.search(rf"^{group} +classic +Stable +1$", text, re.M)


def test_describe_an_empty_group(cli: Commands, topic: str, group: str) -> None:
    commit(cli, group, topic, 5)
    first, second = described(cli, group)
    assert (first["committed"], first["start"], first["end"], first["lag"]) == (5, 0, 10, 5)
    assert first["lag_bytes"] is None and first["lag_bytes_at_most"] > 0
    # The next record is the one of 2020.
    assert first["lag_ms"] > 5 * 365 * 86_400_000
    assert first["lag_ms"] < (time.time() - 1_590_000_000) * 1000
    assert (first["retention_ms"], first["retention_left_ms"]) == (None, None)
    assert (second["committed"], second["lag"], second["member"]) == (None, None, None)
    text = cli.ok("groups", "describe", group)
    assert re.search(
        rf"^{topic} +0 +5 +10 +5 +at most \d+ B +\d+ d( \d+ h)? +unlimited +-$", text, re.M
    )
    assert re.search(rf"^{topic} +1 +none committed +0 +- +- +- +- +-$", text, re.M)


def test_describe_a_group_that_has_read_everything(cli: Commands, topic: str, group: str) -> None:
    commit(cli, group, topic, 10, 0)
    for one in described(cli, group):
        assert (one["lag"], one["lag_bytes"], one["lag_ms"]) == (0, 0, 0)


def test_bytes_are_known_for_a_whole_partition(cli: Commands, topic: str, group: str) -> None:
    commit(cli, group, topic, 0)
    first, _ = described(cli, group)
    assert first["lag_bytes"] == first["lag_bytes_at_most"] > 0


def test_describe_says_who_reads(cli: Commands, topic: str, group: str) -> None:
    with member(cli, group, topic):
        facts = json.loads(cli.ok("groups", "describe", group, "--json"))
        (one,) = facts["members"]
        assert (facts["state"], facts["protocol"], one["client_id"]) == (
            "Stable",
            "range",
            "reader",
        )
        assert [two["member"] for two in facts["partitions"]] == [one["id"]] * 2
        assert [two["lag"] for two in facts["partitions"]] == [None, None]
        assert "reader at 127.0.0.1" in cli.ok("groups", "describe", group)


def test_time_left_before_retention(cli: Commands, group: str) -> None:
    name = f"groups-{uuid.uuid4().hex[:8]}"
    cli.ok("topics", "create", name, "-p", "1", "-c", "retention.ms=3600000")
    cli.ok("produce", name, data=b"a\nb\n")
    commit(cli, group, name, 1)
    (one,) = described(cli, group)
    assert one["retention_ms"] == 3_600_000
    assert 3_500_000 < one["retention_left_ms"] < 3_600_000
    assert one["lag_ms"] + one["retention_left_ms"] == 3_600_000
    assert re.search(r" 59 m \d+ s +-$", cli.ok("groups", "describe", group), re.M)


def test_a_group_below_the_retained_start_is_told(cli: Commands, topic: str, group: str) -> None:
    commit(cli, group, topic, 2)
    delete_before(cli, topic, 6)
    done = cli.run("groups", "describe", group)
    assert done.code == 0
    assert done.stderr == (
        f"warning: group {group} stands at offset 2 of {topic} partition 0, below the retained "
        "start 6: 4 records were deleted before it could read them\n"
    )
    first, _ = described(cli, group)
    assert (first["lost"], first["lag"]) == (4, 4)


def test_a_group_beyond_the_end_is_told(cli: Commands, topic: str, group: str) -> None:
    commit(cli, group, topic, 5, 77)
    done = cli.run("groups", "describe", group)
    assert f"stands at offset 77 of {topic} partition 1, which ends at 0" in done.stderr
    assert described(cli, group)[1]["lag"] == 0


def test_a_deleted_topic_is_no_obstacle(cli: Commands, topic: str, group: str) -> None:
    other = f"groups-{uuid.uuid4().hex[:8]}"
    cli.ok("topics", "create", other, "-p", "1")
    commit(cli, group, topic, 5)
    commit(cli, group, other, 0)
    cli.ok("topics", "delete", other, "--yes")
    until = time.monotonic() + SECONDS_MAX
    while len(described(cli, group)) != 2 and time.monotonic() < until:
        time.sleep(0.2)
    assert standing(cli, group) == [5, None]


def test_groups_of_the_newer_protocol(cli: Commands, topic: str, group: str) -> None:
    commit(cli, group, topic, 4)
    with member(cli, group, topic, **{"group.protocol": "consumer"}):
        assert re.search(rf"^{group} +consumer +Stable +-$", cli.ok("groups", "list"), re.M)
        assert re.search(r" 4 +10 +6 .* unknown$", cli.ok("groups", "describe", group), re.M)
        said = cli.refused(5, "groups", "reset", group, "--to-latest", "--execute")
        assert f"group {group} has members; stop them first" in said
    cli.ok("groups", "reset", group, "--to-latest", "--execute")
    assert standing(cli, group) == [10, 0]


def test_share_groups(cli: Commands, topic: str, group: str) -> None:
    change = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[change])
    configuring = AdminClient({"bootstrap.servers": cli.bootstrap})
    for changed in configuring.incremental_alter_configs([resource]).values():
        changed.result(30)
    settings = {"bootstrap.servers": cli.bootstrap, "group.id": group, "client.id": "worker"}
    settings |= {"share.acknowledgement.mode": "explicit", "log_level": "0"}
    with contextlib.closing(ShareConsumer(settings)) as worker:
        worker.subscribe([topic])
        until = time.monotonic() + SECONDS_MAX
        while not (messages := list(worker.poll(0.5))):
            assert time.monotonic() < until
        for message in messages:
            kind = AcknowledgeType.RELEASE if message.offset() == 3 else AcknowledgeType.ACCEPT
            worker.acknowledge(message, kind)
        worker.commit_sync(10.0)
        shown = cli.ok("groups", "describe", group)
        assert re.search(r"^type +share$", shown, re.M)
        assert re.search(r"^TOPIC +PARTITION +START +END +LAG", shown, re.M)
        said = cli.refused(5, "groups", "delete", group, "--yes")
        assert f"group {group} has 1 member (worker at" in said
        said = cli.refused(5, "groups", "reset", group, "--to-earliest")
        assert f"{group} is a share group" in said
    listed = {one["name"]: one for one in json.loads(cli.ok("groups", "list", "--json"))}
    assert (listed[group]["type"], listed[group]["state"]) == ("share", "Empty")
    found = json.loads(cli.ok("groups", "describe", group, "--json"))
    assert {one["lag"] for one in found["partitions"] if one["partition"] == 0} == {1}
    cli.ok("groups", "delete", group, "--yes")
    assert group not in cli.ok("groups", "list")


# -- reset


@pytest.mark.parametrize(
    ("args", "offsets"),
    [
        (["--to-earliest"], [0, 0]),
        (["--to-latest"], [10, 0]),
        (["--to-offset", "7"], [7, 0]),
        (["--to-offset", "8", "--topic", "{topic}:0"], [8, None]),
        (["--shift-by", "-2"], [2, None]),
        (["--shift-by", "3"], [7, None]),
        (["--shift-by", "-9"], [0, None]),
        (["--to-time", "2020-01-01T00:00:00Z"], [5, 0]),
        (["--to-time", "2018-01-01"], [0, 0]),
        (["--to-time", "2021-01-01"], [10, 0]),
        (["--by-duration", "1h30m"], [10, 0]),
        (["--by-duration", "20000d"], [0, 0]),
    ],
)
def test_reset(
    cli: Commands, topic: str, group: str, args: list[str], offsets: list[int | None]
) -> None:
    commit(cli, group, topic, 4)
    command = ["groups", "reset", group, *[one.format(topic=topic) for one in args]]
    plan = json.loads(cli.ok(*command, "--json"))
    assert (plan["executed"], plan["undo_file"]) == (False, None)
    planned = {one["partition"]: one["to"] for one in plan["partitions"]}
    assert [planned.get(0), planned.get(1)] == offsets
    assert standing(cli, group) == [4, None]
    assert json.loads(cli.ok(*command, "--execute", "--json"))["executed"]
    assert standing(cli, group) == offsets


def test_reset_shows_its_plan_first(cli: Commands, topic: str, group: str) -> None:
    commit(cli, group, topic, 4)
    done = cli.run("groups", "reset", group, "--to-earliest")
    assert done.stderr == "nothing was changed; add --execute to do it\n"
    heading, first, second = done.stdout.decode().splitlines()
    assert heading.split() == ["TOPIC", "PARTITION", "FROM", "TO", "DIFFERENCE"]
    assert first.split() == [topic, "0", "4", "0", "-4"]
    assert second.split() == [topic, "1", "none", "committed", "0", "-"]
    assert list(Path().iterdir()) == []


def test_reset_is_undone_by_the_command_it_prints(cli: Commands, topic: str, group: str) -> None:
    commit(cli, group, topic, 4)
    done = cli.run("groups", "reset", group, "--to-latest", "--execute")
    assert done.code == 0
    assert standing(cli, group) == [10, 0]
    (undo_file,) = Path().iterdir()
    assert undo_file.read_text() == f"{topic},0,4\n{topic},1,\n"
    program, *undo = shlex.split(done.stderr.splitlines()[-1])
    assert program == "penstock"
    cli.ok(*undo)
    assert standing(cli, group) == [4, None]


def test_export_and_from_file(cli: Commands, topic: str, group: str) -> None:
    commit(cli, group, topic, 4, 0)
    cli.ok("groups", "reset", group, "--to-current", "--export", "here.csv")
    assert Path("here.csv").read_text() == f"{topic},0,4\n{topic},1,0\n"
    said = cli.run("groups", "reset", group, "--to-current", "--export", "here.csv", "--execute")
    assert said.code == 2 and "cannot write here.csv: it exists" in said.stderr
    other = f"{group}-other"
    cli.ok("groups", "reset", other, "--from-file", "here.csv", "--execute")
    assert standing(cli, other) == [4, 0]
    again = cli.run("groups", "reset", other, "--from-file", "here.csv", "--execute")
    assert "stands there already: nothing to change" in again.stderr


def test_what_is_not_there_is_said(cli: Commands, topic: str, group: str) -> None:
    commit(cli, group, topic, 4)
    done = cli.run("groups", "reset", group, "--to-offset", "99", "--topic", f"{topic}:0")
    assert f"{topic} partition 0 has no offset 99: 10 is the nearest" in done.stderr


def test_a_group_with_members_is_not_moved(cli: Commands, topic: str, group: str) -> None:
    commit(cli, group, topic, 4)
    with member(cli, group, topic):
        for args in (
            ["groups", "reset", group, "--to-earliest"],
            ["groups", "reset", group, "--to-earliest", "--execute"],
            ["groups", "delete", group, "--yes"],
        ):
            said = cli.refused(5, *args)
            assert f"group {group} has 1 member (reader at 127.0.0.1); stop them first" in said
        # The one it is copied from may go on.
        commit(cli, f"{group}-2", topic, 1)
        assert "has 1 member" in cli.refused(5, "groups", "copy", f"{group}-2", group)
        cli.ok("groups", "copy", group, f"{group}-3", "--execute")
        assert standing(cli, f"{group}-3") == [4, None]
    assert standing(cli, group) == [4, None]


# -- copy and delete


def test_copy(cli: Commands, topic: str, group: str) -> None:
    commit(cli, group, topic, 4, 0)
    commit(cli, f"{group}-2", topic, 9)
    command = ["groups", "copy", group, f"{group}-2"]
    plan = json.loads(cli.ok(*command, "--json"))
    moves = [(one["from"], one["to"], one["difference"]) for one in plan["partitions"]]
    assert moves == [(9, 4, -5), (None, 0, None)]
    assert standing(cli, f"{group}-2") == [9, None]
    undo = json.loads(cli.ok(*command, "--execute", "--json"))["undo_command"]
    assert standing(cli, f"{group}-2") == [4, 0]
    cli.ok(*shlex.split(undo)[1:])
    assert standing(cli, f"{group}-2") == [9, None]
    assert standing(cli, group) == [4, 0]


def test_delete(cli: Commands, topic: str, group: str) -> None:
    commit(cli, group, topic, 4)
    assert "add --yes" in cli.refused(2, "groups", "delete", group)
    said = cli.refused(3, "groups", "delete", group, f"{group}x", "--yes")
    assert f"there is no group {group}x; did you mean {group}?" in said
    assert cli.run("groups", "delete", group, "--yes").stderr == f"deleted {group}\n"
    assert group not in cli.ok("groups", "list")


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["describe", "{group}x"], 3, "did you mean {group}?"),
        (["reset", "{group}x", "--to-earliest"], 3, "did you mean {group}?"),
        (["reset", "{group}"], 2, "no target was given; use one of --to-earliest, "),
        (["reset", "{group}", "--to-latest", "--to-offset", "1"], 2, "exclude each other"),
        (["reset", "{group}", "--to-time", "soon"], 2, "cannot read --to-time 'soon'"),
        (["reset", "{group}", "--by-duration", "1x"], 2, "cannot read --by-duration '1x'"),
        (["reset", "{group}", "--to-latest", "-t", "{topic}:9"], 3, "has no partition 9"),
        (["reset", "{group}", "--to-latest", "-t", "{topic}:a"], 2, "is no list of partitions"),
        (["reset", "{group}", "--to-latest", "-t", "{topic}x"], 3, "did you mean {topic}?"),
        (["reset", "{group}", "--from-file", "none.csv"], 2, "cannot read none.csv"),
        (["copy", "{group}", "{group}"], 2, "they are the same group"),
        (["copy", "{group}x", "{group}"], 3, "did you mean {group}?"),
    ],
)
def test_refusals(
    cli: Commands, topic: str, group: str, args: list[str], code: int, message: str
) -> None:
    commit(cli, group, topic, 4)
    said = cli.refused(code, "groups", *[one.format(topic=topic, group=group) for one in args])
    assert message.format(topic=topic, group=group) in said
    assert standing(cli, group) == [4, None]
