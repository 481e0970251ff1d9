"""Kafka's command-line tools as operators use them, beyond what test_java.py looks at."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.clients.brokers import Broker
from tests.clients.contract import MakeTopic, NewName, Record, eventually, numbered
from tests.clients.test_client_consumer_groups import Crew
from tests.clients.test_client_groups import commit, fill, share
from tests.clients.test_java import TOOLS, Java
from tests.clients.wire import LATEST, Wire
from tools.kafka import java_tool

GROUPS = "consumer.group.ConsumerGroupCommand"
PROTOCOLS = ("classic", "consumer")
HOUR_MS = 3_600_000


@pytest.fixture
def java(broker: Broker) -> Java:
    return Java(broker.bootstrap)


@pytest.fixture
def crew(broker: Broker, group: str) -> Crew:
    return Crew(broker.bootstrap, group)


def events(output: str) -> list[dict[str, Any]]:
    """What the Verifiable tools print: one JSON object per line."""
    return [json.loads(line) for line in output.splitlines()]


def named(name: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in found if event["name"] == name]


def verified(java: Java, topic: str, group: str, protocol: str) -> None:
    """Kafka's own system tests are made of these two: what one sends the other receives."""
    command = ("--topic", topic, "--max-messages", "500")
    sent = events(java.run("VerifiableProducer", *command, "--acks", "-1"))
    acknowledged = [event["value"] for event in named("producer_send_success", sent)]
    assert sorted(acknowledged, key=int) == [str(number) for number in range(500)]
    assert named("tool_data", sent)[0]["acked"] == 500
    more = ("--group-id", group, "--group-protocol", protocol, "--verbose")
    seen = events(java.run("VerifiableConsumer", *command, *more))
    values = [event["value"] for event in named("record_data", seen)]
    assert sorted(values, key=int) == [str(number) for number in range(500)]
    assert named("partitions_assigned", seen)
    assert all(event["success"] for event in named("offsets_committed", seen))
    assert seen[-1]["name"].startswith("shutdown")


def test_smoke(java: Java, group: str, make_topic: MakeTopic) -> None:
    verified(java, make_topic(partitions=2), group, "consumer")
    described = java.run(GROUPS, "--describe", "--group", group)
    offsets = re.findall(rf"^{group}\s+\S+\s+\d\s+(\d+)\s+(\d+)\s+0\s", described, re.MULTILINE)
    assert sum(int(committed) for committed, _ in offsets) == 500


@pytest.mark.compat
class TestVerifiable:
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_both(self, java: Java, group: str, make_topic: MakeTopic, protocol: str) -> None:
        verified(java, make_topic(partitions=3), group, protocol)

    def test_time_and_keys(self, java: Java, wire: Wire, topic: str) -> None:
        options = ("--message-create-time", "1700000000000", "--repeating-keys", "3")
        prefix = ("--value-prefix", "7")
        java.run("VerifiableProducer", "--topic", topic, "--max-messages", "6", *options, *prefix)
        stored = wire.stored(topic)
        assert [record.key for record in stored] == [b"0", b"1", b"2"] * 2
        assert [record.value for record in stored] == [b"7.%d" % number for number in range(6)]
        assert stored[0].timestamp == 1_700_000_000_000

    def test_clients_of_every_age(self, java: Java, topic: str) -> None:
        """Kafka's own check of what a client may expect from a broker of a certain age."""
        expectations = {
            "offsets-for-times-supported": "True",
            "cluster-id-supported": "True",
            "expect-record-too-large-exception": "False",
            "num-cluster-nodes": "1",
            "create-topics-supported": "True",
            "describe-acls-supported": "True",
            "describe-configs-supported": "True",
            "idempotent-producer-supported": "True",
        }
        flags = [part for name, value in expectations.items() for part in (f"--{name}", value)]
        assert "SUCCESS" in java.run("ClientCompatibilityTest", "--topic", topic, *flags)


@pytest.mark.compat
class TestGroups:
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_with_members(
        self, java: Java, crew: Crew, wire: Wire, topic: str, protocol: str
    ) -> None:
        fill(wire, topic, 1)
        group = crew.group
        settings: dict[str, Any] = {"group_protocol": protocol, "client_id": "the-client"}
        with crew.consumer(topic, **settings) as consumer:
            share(consumer, partitions=1)
            commit(consumer, topic, {0: 4})
            listed = java.run(GROUPS, "--list", "--state", "stable")
            assert re.search(rf"^{group}\s+Stable", listed, re.MULTILINE)
            offsets = java.run(GROUPS, "--describe", "--group", group, "--offsets")
            assert re.search(
                rf"{group}\s+{topic}\s+0\s+4\s+10\s+6\s+\S+\s+\S+\s+the-client", offsets
            )
            members = java.run(GROUPS, "--describe", "--group", group, "--members")
            assert re.search(rf"{group}\s+\S+\s+/127.0.0.1\s+the-client\s+1\s", members)
            state = java.run(GROUPS, "--describe", "--group", group, "--state")
            assert re.search(rf"{group}\s+127.0.0.1:\d+\s+\(\d+\)\s+\S+\s+Stable\s+1", state)
            reset = ("--reset-offsets", "--to-earliest", "--topic", topic, "--execute")
            refused = java.attempt(GROUPS, "--group", group, *reset)
            assert "inactive" in refused.stdout + refused.stderr
            refused = java.attempt(GROUPS, "--delete", "--group", group)
            assert "GroupNotEmptyException" in refused.stdout + refused.stderr
            kinds = java.run("GroupsCommand", "--list", "--group-type", protocol)
            assert re.search(rf"^{group}\s+{protocol.title()}\s+consumer", kinds, re.MULTILINE)
        java.run(GROUPS, "--delete", "--group", group)
        assert group not in java.run("GroupsCommand", "--list").split()

    def test_moved_in_every_way(
        self,
        java: Java,
        crew: Crew,
        wire: Wire,
        make_topic: MakeTopic,
        tmp_path: Path,
    ) -> None:
        now = 1_700_000_000_000
        topic = make_topic(
            configs={"retention.ms": "-1"}
        )  # on a slow machine they would be removed
        hours = [Record(b"x", timestamp=now + number * HOUR_MS) for number in range(10)]
        wire.write(topic, hours)
        with crew.consumer(topic) as consumer:
            share(consumer, partitions=1)
            commit(consumer, topic, {0: 4})
        reset = ("--reset-offsets", "--group", crew.group, "--topic", topic)

        def moved(*how: str) -> int:
            (found,) = re.findall(rf"{topic}\s+0\s+(\d+)", java.run(GROUPS, *reset, *how))
            return int(found)

        assert moved("--to-latest", "--dry-run") == 10
        assert moved("--to-current", "--dry-run") == 4
        assert moved("--shift-by", "-3", "--execute") == 1
        assert moved("--to-current", "--dry-run") == 1
        assert moved("--to-datetime", "2023-11-15T03:00:00.000", "--execute") == 5
        assert moved("--by-duration", "PT1H", "--execute") == 10
        assert moved("--to-earliest", "--execute") == 0
        exported = java.run(GROUPS, *reset, "--to-offset", "8", "--dry-run", "--export")
        plan = tmp_path / "plan.csv"
        plan.write_text(exported)
        java.run(GROUPS, *reset[:3], "--from-file", str(plan), "--execute")
        described = java.run(GROUPS, "--describe", "--group", crew.group)
        assert re.search(rf"{topic}\s+0\s+8\s+10\s+2\s", described)

    def test_what_is_not_there(self, java: Java, group: str) -> None:
        for what in ("--describe", "--delete"):
            done = java.attempt(GROUPS, what, "--group", group)
            assert "does not exist" in done.stdout + done.stderr or "GroupIdNotFound" in done.stdout


@pytest.mark.compat
class TestTopics:
    def test_in_words_of_operators(self, java: Java, new_name: NewName) -> None:
        prefix = new_name()
        for name, options in (("a", ()), ("b", ("--config", "retention.ms=60000"))):
            command = ("--create", "--topic", f"{prefix}-{name}", *options)
            java.run("TopicCommand", *command, "--replication-factor", "1")
        java.run("TopicCommand", "--create", "--if-not-exists", "--topic", f"{prefix}-a")
        changed = java.run("TopicCommand", "--describe", "--topics-with-overrides")
        assert f"Topic: {prefix}-b" in changed
        for problem in ("--unavailable-partitions", "--under-replicated-partitions"):
            assert prefix not in java.run("TopicCommand", "--describe", problem)
        listed = java.run("TopicCommand", "--list", "--topic", f"{prefix}.*").split()
        assert listed == [f"{prefix}-a", f"{prefix}-b"]
        java.run("TopicCommand", "--delete", "--topic", f"{prefix}.*")
        assert prefix not in java.run("TopicCommand", "--list")
        java.run("TopicCommand", "--delete", "--if-exists", "--topic", f"{prefix}-a")

    def test_offsets_of_many(self, java: Java, wire: Wire, new_name: NewName) -> None:
        prefix = new_name()
        for name in ("a", "b"):
            wire.create_topic(f"{prefix}-{name}", 2)
            wire.write(f"{prefix}-{name}", numbered(3), partition=1)
        listed = java.run("GetOffsetShell", "--topic-partitions", f"{prefix}-.*:1").split()
        assert listed == [f"{prefix}-a:1:3", f"{prefix}-b:1:3"]

    def test_moving_to_where_they_are(
        self, java: Java, wire: Wire, topic: str, tmp_path: Path
    ) -> None:
        node = wire.metadata(topic).partitions[0].leader_id
        tool, plan = "reassign.ReassignPartitionsCommand", tmp_path / "plan.json"
        plan.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
        made = java.run(
            tool, "--generate", "--topics-to-move-json-file", str(plan), "--broker-list", str(node)
        )
        proposed = json.loads(made.splitlines()[-1])
        assert proposed["partitions"][0]["replicas"] == [node]
        plan.write_text(json.dumps(proposed))
        given = ("--reassignment-json-file", str(plan))
        assert "Successfully started" in java.run(tool, "--execute", *given)
        verified = eventually(lambda: completed(java.run(tool, "--verify", *given)), "it is done")
        assert f"Reassignment of partition {topic}-0 is completed." in verified

    def test_log_folders_of_all(self, java: Java, topic: str) -> None:
        output = java.run("LogDirsCommand", "--describe")
        (broker,) = json.loads(output.splitlines()[-1])["brokers"]
        (folder,) = broker["logDirs"]
        assert f"{topic}-0" in [partition["partition"] for partition in folder["partitions"]]


def completed(output: str) -> str | None:
    return output if "completed" in output else None


@pytest.mark.compat
class TestBroker:
    def test_configs(self, java: Java, broker: Broker, wire: Wire, topic: str) -> None:
        """Penstock's own settings stand in its command line; whoever tries is told so."""
        node = wire.metadata(topic).partitions[0].leader_id
        entity = ("--entity-type", "brokers", "--entity-name", str(node))
        assert "log.segment.bytes=1073741824" in java.configs(*entity, "--describe", "--all")
        command = ("kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap)
        change = ("--alter", "--add-config", "log.retention.ms=604800000")
        done = java_tool(*command, *entity, *change, check=False)
        if broker.name == "kafka":
            assert done.returncode == 0
            java_tool(*command, *entity, "--alter", "--delete-config", "log.retention.ms")
        else:
            assert "cannot be altered while it runs" in done.stderr

    def test_quotas_of_clients(self, java: Java, new_name: NewName) -> None:
        client = ("--entity-type", "clients", "--entity-name", new_name())
        java.configs("--alter", *client, "--add-config", "producer_byte_rate=1048576")
        shown = eventually(
            lambda: found if "1048576" in (found := java.configs("--describe", *client)) else None,
            "the quota",
        )
        assert "producer_byte_rate=1048576.0" in shown
        java.configs("--alter", *client, "--delete-config", "producer_byte_rate")
        eventually(
            lambda: "1048576" not in java.configs("--describe", *client) or None, "it is gone"
        )

    def test_where_it_is(self, broker: Broker) -> None:
        server = ("--bootstrap-server", broker.bootstrap)
        listed = java_tool(f"{TOOLS}.ClusterTool", "list-endpoints", *server).stdout
        host, port = broker.bootstrap.split(":")
        assert re.search(rf"^\d+\s+{host}\s+{port}\s", listed, re.MULTILINE)

    def test_features(self, java: Java) -> None:
        described = java_tool(
            f"{TOOLS}.FeatureCommand", "--bootstrap-server", java.bootstrap, "describe"
        ).stdout
        assert re.search(r"Feature: group.version\s.*FinalizedVersionLevel: 1\s", described)
        assert re.search(r"Feature: transaction.version\s.*FinalizedVersionLevel: 2\s", described)

    def test_quorum(self, broker: Broker) -> None:
        """Penstock has no quorum of controllers and does not act one; the tool says so at once."""
        command = (f"{TOOLS}.MetadataQuorumCommand", "--bootstrap-server", broker.bootstrap)
        done = java_tool(*command, "describe", "--status", check=False)
        if broker.name == "kafka":
            assert "LeaderId:" in done.stdout
        else:
            assert "DESCRIBE_QUORUM" in done.stdout + done.stderr


@pytest.mark.compat
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_console_both_ways(
    java: Java, wire: Wire, group: str, make_topic: MakeTopic, protocol: str
) -> None:
    topic = make_topic(partitions=2)
    lines = "".join(f"k{number % 5}:v{number}\n" for number in range(100))
    keys = ("parse.key=true", "key.separator=:")
    options = [part for key in keys for part in ("--reader-property", key)]
    java.run("ConsoleProducer", "--topic", topic, *options, stdin=lines)
    assert sum(wire.offset(topic, LATEST, partition) for partition in range(2)) == 100
    shown = java.run(
        "consumer.ConsoleConsumer",
        *("--topic", topic, "--group", group, "--from-beginning", "--max-messages", "100"),
        *("--timeout-ms", "60000", "--command-property", f"group.protocol={protocol}"),
        *("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:"),
    )
    assert sorted(shown.splitlines()) == sorted(lines.splitlines())
