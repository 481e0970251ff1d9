"""Topics and settings over the bare protocol, with exact answers."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from kafka.protocol.admin import DescribeClusterRequest, DescribeLogDirsRequest
from tests.clients import admin_requests as admin
from tests.clients.contract import Code, MakeTopic, NewName, eventually, numbered
from tests.clients.wire import EARLIEST, LATEST, Wire, build_batch

pytestmark = pytest.mark.compat

TOPIC_SOURCE, DEFAULT_SOURCE = 1, 5
LONG_TYPE, LIST_TYPE = 5, 7
KAFKAS_TOPIC_CONFIGS = {
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "index.interval.bytes",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
}


def node(wire: Wire) -> int:
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=1, include_fenced_brokers=False
    )
    return int(wire.call(request).controller_id)


class TestCreateTopics:
    def test_the_answer(self, wire: Wire, new_name: NewName) -> None:
        name = new_name()
        request = admin.create_topics(name, partitions=2, configs={"retention.ms": "60000"})
        (made,) = wire.call(request).topics
        assert (made.error_code, made.error_message) == (Code.NONE, None)
        assert (made.name, made.num_partitions, made.replication_factor) == (name, 2, 1)
        configs = {one.name: one for one in made.configs}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == (
            "60000",
            TOPIC_SOURCE,
        )
        assert configs["segment.bytes"].config_source == DEFAULT_SOURCE
        eventually(lambda: not wire.metadata(name).error_code or None, "it is known")
        assert wire.metadata(name).topic_id == made.topic_id != uuid.UUID(int=0)

    def test_defaults_of_the_broker(self, wire: Wire, new_name: NewName) -> None:
        request = admin.create_topics(new_name(), partitions=-1, replication_factor=-1)
        (made,) = wire.call(request).topics
        assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 1, 1)

    @pytest.mark.parametrize(
        ("options", "code"),
        [
            ({"partitions": 0}, Code.INVALID_PARTITIONS),
            ({"partitions": -2}, Code.INVALID_PARTITIONS),
            ({"replication_factor": 2}, Code.INVALID_REPLICATION_FACTOR),
            ({"replication_factor": 0}, Code.INVALID_REPLICATION_FACTOR),
            ({"configs": {"retention.ms": None}}, Code.INVALID_CONFIG),
            ({"configs": {"segment.bytes": "1"}}, Code.INVALID_CONFIG),
            ({"configs": {"min.insync.replicas": "0"}}, Code.INVALID_CONFIG),
            ({"configs": {"compression.type": "rar"}}, Code.INVALID_CONFIG),
            ({"configs": {"message.timestamp.type": "Never"}}, Code.INVALID_CONFIG),
            ({"configs": {"preallocate": "maybe"}}, Code.INVALID_CONFIG),
            ({"configs": {"retention.ms": "1_000"}}, Code.INVALID_CONFIG),
            ({"configs": {"cleanup.policy": "compact,,delete"}}, Code.INVALID_CONFIG),
        ],
        ids=str,
    )
    def test_refused(
        self, wire: Wire, new_name: NewName, options: Mapping[str, Any], code: Code
    ) -> None:
        name = new_name()
        (made,) = wire.call(admin.create_topics(name, **options)).topics
        assert made.error_code == code
        assert made.error_message
        assert wire.metadata(name).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250])
    def test_bad_name(self, wire: Wire, name: str) -> None:
        (made,) = wire.call(admin.create_topics(name)).topics
        assert made.error_code == Code.INVALID_TOPIC_EXCEPTION

    def test_longest_name(self, wire: Wire, new_name: NewName) -> None:
        name = new_name().ljust(249, "x")
        wire.create_topic(name)
        assert wire.write(name, numbered(1)) == 0

    def test_names_that_collide(self, wire: Wire, new_name: NewName) -> None:
        """Metrics write dots as underscores, so Kafka forbids names that differ only there."""
        name = new_name()
        wire.create_topic(f"{name}.a_b")
        (made,) = wire.call(admin.create_topics(f"{name}_a.b")).topics
        assert made.error_code == Code.INVALID_TOPIC_EXCEPTION

    def test_twice_in_one_request(self, wire: Wire, new_name: NewName) -> None:
        name = new_name()
        answers = wire.call(admin.create_topics(name, name)).topics
        assert {made.error_code for made in answers} == {Code.INVALID_REQUEST}
        assert wire.metadata(name).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION

    def test_one_of_several_fails(self, wire: Wire, topic: str, new_name: NewName) -> None:
        name = new_name()
        answers = {
            one.name: one.error_code for one in wire.call(admin.create_topics(topic, name)).topics
        }
        assert answers == {topic: Code.TOPIC_ALREADY_EXISTS, name: Code.NONE}

    def test_validate_only(self, wire: Wire, topic: str, new_name: NewName) -> None:
        name = new_name()
        fine = admin.create_topics(name, partitions=3, validate_only=True)
        (answer,) = wire.call(fine).topics
        assert (answer.error_code, answer.num_partitions) == (Code.NONE, 3)
        assert wire.metadata(name).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        (answer,) = wire.call(admin.create_topics(topic, validate_only=True)).topics
        assert answer.error_code == Code.TOPIC_ALREADY_EXISTS

    def test_assigned_by_hand(self, wire: Wire, new_name: NewName) -> None:
        here = node(wire)
        name = new_name()
        options: dict[str, Any] = {"partitions": -1, "replication_factor": -1}
        given = admin.create_topics(name, assignments={0: [here], 1: [here]}, **options)
        (made,) = wire.call(given).topics
        assert (made.error_code, made.num_partitions) == (Code.NONE, 2)
        elsewhere = admin.create_topics(new_name(), assignments={0: [here + 1]}, **options)
        (made,) = wire.call(elsewhere).topics
        assert made.error_code == Code.INVALID_REPLICA_ASSIGNMENT
        with_gap = admin.create_topics(new_name(), assignments={1: [here]}, **options)
        (made,) = wire.call(with_gap).topics
        assert made.error_code == Code.INVALID_REPLICA_ASSIGNMENT


class TestDeleteTopics:
    def test_by_id(self, wire: Wire, topic: str) -> None:
        identity = wire.metadata(topic).topic_id
        (answer,) = wire.call(admin.delete_topic(topic_id=identity)).responses
        assert (answer.error_code, answer.name, answer.topic_id) == (Code.NONE, topic, identity)
        eventually(
            lambda: wire.metadata(topic).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION or None,
            "it is gone",
        )
        (answer,) = wire.call(admin.delete_topic(topic_id=identity)).responses
        assert answer.error_code == Code.UNKNOWN_TOPIC_ID

    def test_what_clients_then_see(self, wire: Wire, topic: str) -> None:
        wire.write(topic, numbered(3))
        wire.call(admin.delete_topic(topic))

        def gone() -> bool | None:
            codes = {
                wire.fetch(topic, 0).error_code,
                wire.list_offsets(topic, {0: LATEST})[0].error_code,
            }
            return codes == {Code.UNKNOWN_TOPIC_OR_PARTITION} or None

        eventually(gone, "it is gone")


class TestCreatePartitions:
    def test_grow(self, wire: Wire, topic: str) -> None:
        wire.write(topic, numbered(3))
        (answer,) = wire.call(admin.create_partitions(topic, 3)).results
        assert (answer.name, answer.error_code) == (topic, Code.NONE)
        eventually(lambda: len(wire.metadata(topic).partitions) == 3 or None, "there are three")
        assert wire.offset(topic, LATEST) == 3

    @pytest.mark.parametrize("count", [-1, 0, 1])
    def test_not_more(self, wire: Wire, topic: str, count: int) -> None:
        (answer,) = wire.call(admin.create_partitions(topic, count)).results
        assert answer.error_code == Code.INVALID_PARTITIONS

    def test_unknown_topic(self, wire: Wire, new_name: NewName) -> None:
        (answer,) = wire.call(admin.create_partitions(new_name(), 2)).results
        assert answer.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION

    def test_validate_only(self, wire: Wire, topic: str) -> None:
        (answer,) = wire.call(admin.create_partitions(topic, 2, validate_only=True)).results
        assert answer.error_code == Code.NONE
        assert len(wire.metadata(topic).partitions) == 1

    def test_assigned_by_hand(self, wire: Wire, topic: str) -> None:
        here = node(wire)
        (answer,) = wire.call(admin.create_partitions(topic, 3, assignments=[[here]])).results
        assert answer.error_code == Code.INVALID_REPLICA_ASSIGNMENT
        request = admin.create_partitions(topic, 3, assignments=[[here], [here]])
        (answer,) = wire.call(request).results
        assert answer.error_code == Code.NONE


class TestDeleteRecords:
    def delete(self, wire: Wire, topic: str, offset: int, partition: int = 0) -> tuple[int, int]:
        (answer,) = wire.call(admin.delete_records(topic, offset, partition)).topics
        (one,) = answer.partitions
        return one.error_code, one.low_watermark

    def test_up_to(self, wire: Wire, topic: str) -> None:
        wire.write(topic, numbered(10))
        assert self.delete(wire, topic, 4) == (Code.NONE, 4)
        assert self.delete(wire, topic, 2) == (Code.NONE, 4)  # never backwards
        assert self.delete(wire, topic, 11) == (Code.OFFSET_OUT_OF_RANGE, -1)
        assert self.delete(wire, topic, -2) == (Code.OFFSET_OUT_OF_RANGE, -1)
        assert self.delete(wire, topic, -1) == (Code.NONE, 10)
        assert (wire.offset(topic, EARLIEST), wire.offset(topic, LATEST)) == (10, 10)
        assert wire.write(topic, numbered(1)) == 10

    def test_unknown(self, wire: Wire, topic: str) -> None:
        unknown = (Code.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert self.delete(wire, topic, 0, partition=5) == unknown
        assert self.delete(wire, f"{topic}-not", 0) == unknown

    def test_compacted(self, wire: Wire, make_topic: MakeTopic) -> None:
        topic = make_topic(configs={"cleanup.policy": "compact"})
        assert self.delete(wire, topic, 0)[0] == Code.POLICY_VIOLATION


class TestConfigs:
    def describe(self, wire: Wire, name: str, **options: Any) -> dict[str, Any]:
        (answer,) = wire.call(admin.describe_configs(name, **options)).results
        assert answer.error_code == Code.NONE, answer
        return {one.name: one for one in answer.configs}

    def values(self, wire: Wire, topic: str, *names: str) -> list[str | None]:
        found = self.describe(wire, topic)
        return [found[name].value for name in names]

    def test_all_of_a_topic(self, wire: Wire, make_topic: MakeTopic) -> None:
        topic = make_topic(configs={"retention.ms": "60000"})
        found = self.describe(wire, topic, everything=True)
        assert set(found) >= KAFKAS_TOPIC_CONFIGS
        retention = found["retention.ms"]
        assert (retention.value, retention.config_source, retention.config_type) == (
            "60000",
            TOPIC_SOURCE,
            LONG_TYPE,
        )
        assert not (retention.read_only or retention.is_sensitive)
        assert retention.documentation
        assert (retention.synonyms[0].name, retention.synonyms[0].value) == (
            "retention.ms",
            "60000",
        )
        policy = found["cleanup.policy"]
        assert (policy.config_source, policy.config_type) == (DEFAULT_SOURCE, LIST_TYPE)

    def test_blanks_in_values_do_not_count(self, wire: Wire, make_topic: MakeTopic) -> None:
        given = {"cleanup.policy": "compact, delete", "retention.ms": " 07 ", "preallocate": "True"}
        found = self.values(wire, make_topic(configs=given), *given)
        assert found == ["compact,delete", "7", "true"]

    def test_some_of_a_topic(self, wire: Wire, topic: str) -> None:
        found = self.describe(wire, topic, keys=["retention.ms", "no.such.setting"])
        assert set(found) == {"retention.ms"}

    def test_unknown(self, wire: Wire, new_name: NewName) -> None:
        (answer,) = wire.call(admin.describe_configs(new_name())).results
        assert answer.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        (answer,) = wire.call(admin.describe_configs("a b")).results
        assert answer.error_code == Code.INVALID_TOPIC_EXCEPTION

    def test_broker(self, wire: Wire) -> None:
        found = self.describe(wire, str(node(wire)), kind=admin.BROKER)
        assert found["default.replication.factor"].value == "1"
        assert found["num.partitions"].value == "1"
        assert found["auto.create.topics.enable"].value == "true"
        assert found["message.max.bytes"].value == "1048588"
        assert found["log.retention.ms"].value in (None, "604800000")

    def test_other_broker(self, wire: Wire) -> None:
        request = admin.describe_configs(str(node(wire) + 1), kind=admin.BROKER)
        (answer,) = wire.call(request).results
        assert answer.error_code == Code.INVALID_REQUEST

    def test_alter_replaces_everything(self, wire: Wire, make_topic: MakeTopic) -> None:
        topic = make_topic(configs={"retention.ms": "60000"})
        (answer,) = wire.call(admin.alter_configs(topic, {"retention.bytes": "1000"})).responses
        assert answer.error_code == Code.NONE
        names = ("retention.ms", "retention.bytes")
        eventually(
            lambda: self.values(wire, topic, *names) == ["604800000", "1000"] or None, "replaced"
        )

    def test_incremental(self, wire: Wire, make_topic: MakeTopic) -> None:
        topic = make_topic(configs={"retention.ms": "60000"})
        changes = [
            ("retention.bytes", admin.SET, "1000"),
            ("retention.ms", admin.DELETE, None),
            ("cleanup.policy", admin.APPEND, "delete"),  # it is there already
        ]
        self.change(wire, topic, changes)
        names = ("retention.bytes", "retention.ms", "cleanup.policy")
        wanted = ["1000", "604800000", "delete"]
        eventually(lambda: self.values(wire, topic, *names) == wanted or None, "changed")

    def test_append_and_subtract(self, wire: Wire, topic: str) -> None:
        steps = {
            "delete,compact": ("cleanup.policy", admin.APPEND, "compact"),
            "compact": ("cleanup.policy", admin.SUBTRACT, "delete"),
        }
        for wanted, step in steps.items():
            self.change(wire, topic, [step])

            def changed(wanted: str = wanted) -> bool | None:
                return self.values(wire, topic, "cleanup.policy") == [wanted] or None

            eventually(changed, f"it is {wanted}")

    def change(self, wire: Wire, topic: str, changes: list[tuple[str, int, str | None]]) -> None:
        (answer,) = wire.call(admin.change_configs(topic, changes)).responses
        assert answer.error_code == Code.NONE, answer

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            (("retention.ms", admin.SET, "soon"), Code.INVALID_CONFIG),
            (("no.such.setting", admin.SET, "1"), Code.INVALID_CONFIG),
            (("retention.ms", admin.APPEND, "1"), Code.INVALID_CONFIG),
            (("retention.ms", admin.SET, None), Code.INVALID_REQUEST),
        ],
        ids=str,
    )
    def test_refused(
        self, wire: Wire, topic: str, change: tuple[str, int, str | None], code: Code
    ) -> None:
        changes = [("retention.bytes", admin.SET, "1000"), change]
        (answer,) = wire.call(admin.change_configs(topic, changes)).responses
        assert answer.error_code == code
        assert self.values(wire, topic, "retention.bytes") == ["-1"]  # all or nothing

    def test_refused_by_the_old_request(self, wire: Wire, topic: str) -> None:
        (answer,) = wire.call(admin.alter_configs(topic, {"retention.ms": "soon"})).responses
        assert answer.error_code == Code.INVALID_CONFIG

    def test_unknown_topic(self, wire: Wire, new_name: NewName) -> None:
        changes = [("retention.ms", admin.SET, "1000")]
        (answer,) = wire.call(admin.change_configs(new_name(), changes)).responses
        assert answer.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION

    def test_validate_only(self, wire: Wire, topic: str) -> None:
        request = admin.change_configs(
            topic, [("retention.ms", admin.SET, "1000")], validate_only=True
        )
        (answer,) = wire.call(request).responses
        assert answer.error_code == Code.NONE
        assert self.values(wire, topic, "retention.ms") == ["604800000"]

    def test_a_new_limit_holds_for_the_next_batch(self, wire: Wire, topic: str) -> None:
        wire.call(admin.change_configs(topic, [("max.message.bytes", admin.SET, "100")]))

        def refused() -> bool | None:
            answer = wire.append(topic, build_batch(numbered(10)))
            return answer.error_code == Code.MESSAGE_TOO_LARGE or None

        eventually(refused, "the limit holds")


class TestDescribe:
    def test_cluster(self, wire: Wire) -> None:
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False,
            endpoint_type=1,
            include_fenced_brokers=False,
        )
        answer = wire.call(request)
        assert answer.error_code == Code.NONE
        assert answer.cluster_id
        (broker,) = answer.brokers
        assert f"{broker.host}:{broker.port}" == wire.address
        assert broker.broker_id == answer.controller_id

    def test_partitions_page_by_page(self, wire: Wire, make_topic: MakeTopic) -> None:
        first, second = sorted([make_topic(partitions=3), make_topic(partitions=2)])
        seen: list[tuple[str, int]] = []
        cursor: tuple[str, int] | None = None
        pages = 0
        while pages == 0 or cursor:
            request = admin.describe_partitions(first, second, limit=2, cursor=cursor)
            answer = wire.call(request)
            found = [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
            assert len(found) <= 2
            seen += found
            following = answer.next_cursor
            cursor = following and (following.topic_name, following.partition_index)
            pages += 1
        counts = {name: len(wire.metadata(name).partitions) for name in (first, second)}
        assert seen == [(name, n) for name in (first, second) for n in range(counts[name])]

    def test_partitions_of_an_unknown_topic(self, wire: Wire, new_name: NewName) -> None:
        (answer,) = wire.call(admin.describe_partitions(new_name())).topics
        assert answer.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION

    def test_log_folders(self, wire: Wire, topic: str) -> None:
        wire.write(topic, numbered(10))
        (folder,) = wire.call(admin.describe_log_dirs(topic)).results
        assert (folder.error_code, len(folder.topics)) == (Code.NONE, 1)
        (partition,) = folder.topics[0].partitions
        assert partition.partition_size > 100
        (everything,) = wire.call(DescribeLogDirsRequest(topics=None)).results
        assert topic in {found.name for found in everything.topics}

    def test_log_folders_of_an_unknown_topic(self, wire: Wire, new_name: NewName) -> None:
        (folder,) = wire.call(admin.describe_log_dirs(new_name())).results
        assert (folder.error_code, list(folder.topics)) == (Code.NONE, [])
