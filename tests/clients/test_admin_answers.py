"""Administration that makes little sense on one node, answered as a Kafka with one node does."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListConfigResourcesRequest,
    UpdateFeaturesRequest,
)
from tests.clients.brokers import Broker
from tests.clients.contract import Code
from tests.clients.wire import Wire
from tools.kafka import java_tool

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka import errors as kafka_errors

TOOLS = "org.apache.kafka.tools"
RULE = ("User:alice", "*", ACLOperation.READ, ACLPermissionType.ALLOW)
ELECTION_NOT_NEEDED, NO_REASSIGNMENT, INVALID_UPDATE_VERSION = 84, 85, 95


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


@pytest.fixture
def node(admin: KafkaAdminClient) -> int:
    return int(admin.describe_cluster()["brokers"][0]["broker_id"])


class TestReplicas:
    def test_elections_are_not_needed(self, admin: KafkaAdminClient, topic: str) -> None:
        for kind in (0, 1):
            answer = admin.elect_leaders(kind, {topic: [0]})
            (result,) = answer.replica_election_results
            (partition,) = result.partition_result
            assert (result.topic, partition.partition_id) == (topic, 0)
            assert partition.error_code == ELECTION_NOT_NEEDED

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_elections_of_all_and_of_none(self, wire: Wire, topic: str, version: int) -> None:
        message = ElectLeadersRequest.TopicPartitions
        everything = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=9000)
        results = wire.call(everything, version).replica_election_results
        assert topic in [one.topic for one in results]
        assert all(one.partition_result == [] for one in results)
        unknown = [message(topic=topic, partitions=[7]), message(topic="absent", partitions=[0])]
        request = ElectLeadersRequest(election_type=0, topic_partitions=unknown, timeout_ms=9000)
        found = wire.call(request, version).replica_election_results
        codes = {(one.topic, two.error_code) for one in found for two in one.partition_result}
        assert codes == {(name, Code.UNKNOWN_TOPIC_OR_PARTITION) for name in (topic, "absent")}

    def test_partitions_stay_where_they_are(
        self, admin: KafkaAdminClient, topic: str, node: int
    ) -> None:
        place = TopicPartition(topic, 0)
        assert admin.alter_partition_reassignments({place: [node]}) == {place: None}
        assert admin.list_partition_reassignments() == {}
        assert admin.list_partition_reassignments({topic: [0]}) == {}
        refused = admin.alter_partition_reassignments({place: [node + 1]})
        assert refused == {place: kafka_errors.for_code(Code.INVALID_REPLICA_ASSIGNMENT)}
        refused = admin.alter_partition_reassignments({place: None})
        assert refused == {place: kafka_errors.for_code(NO_REASSIGNMENT)}
        absent = TopicPartition(topic, 9)
        refused = admin.alter_partition_reassignments({absent: [node]})
        assert refused == {absent: kafka_errors.UnknownTopicOrPartitionError}

    @pytest.mark.parametrize("version", [0, 1])
    @pytest.mark.parametrize("replicas", [[], [1, 1], [99]])
    def test_no_such_place(self, wire: Wire, topic: str, version: int, replicas: list[int]) -> None:
        message = AlterPartitionReassignmentsRequest.ReassignableTopic
        partition = message.ReassignablePartition(partition_index=0, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=9000,
            allow_replication_factor_change=True,
            topics=[message(name=topic, partitions=[partition])],
        )
        answer = wire.call(request, version)
        ((result,),) = [one.partitions for one in answer.responses]
        assert (answer.error_code, result.error_code) == (0, Code.INVALID_REPLICA_ASSIGNMENT)
        assert result.error_message

    @pytest.mark.compat
    def test_kafkas_tools(self, broker: Broker, topic: str) -> None:
        server = ("--bootstrap-server", broker.bootstrap)
        done = java_tool(
            f"{TOOLS}.LeaderElectionCommand",
            *server,
            *("--election-type", "preferred", "--topic", topic, "--partition", "0"),
        )
        assert f"Valid replica already elected for partitions {topic}-0" in done.stdout
        done = java_tool(f"{TOOLS}.reassign.ReassignPartitionsCommand", *server, "--list")
        assert "No partition reassignments found." in done.stdout


class TestProducers:
    def test_who_has_written(self, broker: Broker, admin: KafkaAdminClient, topic: str) -> None:
        place = TopicPartition(topic, 0)
        assert admin.describe_producers([place])[place].active_producers == []
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
        for moment in (1_700_000_000_000, 1_700_000_000_001):
            producer.send(topic, b"x", timestamp_ms=moment).get(60)
        producer.close()
        (state,) = admin.describe_producers([place])[place].active_producers
        assert state.producer_id >= 0
        assert (state.producer_epoch, state.last_sequence) == (0, 1)
        assert state.last_timestamp == 1_700_000_000_001
        assert state.current_transaction_start_offset == -1

    def test_partition_that_is_none(self, admin: KafkaAdminClient, topic: str, node: int) -> None:
        with pytest.raises(kafka_errors.UnknownTopicOrPartitionError):
            admin.describe_producers([TopicPartition(topic, 5)], broker_id=node)

    @pytest.mark.compat
    def test_kafkas_tool(self, broker: Broker, topic: str) -> None:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
        producer.send(topic, b"x").get(60)
        producer.close()
        done = java_tool(
            f"{TOOLS}.TransactionsCommand",
            *("--bootstrap-server", broker.bootstrap),
            *("describe-producers", "--topic", topic, "--partition", "0"),
        )
        heading, *rows = done.stdout.splitlines()
        assert heading.split()[0] == "ProducerId"
        assert len(rows) == 1
        assert re.fullmatch(r"\d+\s+0\s+-1\s+0\s+\d+\s+None\s*", rows[0])


class TestSecurity:
    def test_there_are_no_rules(self, admin: KafkaAdminClient) -> None:
        pattern = ResourcePatternFilter(ResourceType.TOPIC, None, ACLResourcePatternType.ANY)
        everything = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, pattern)
        with pytest.raises(kafka_errors.SecurityDisabledError):
            admin.describe_acls(everything)

    def test_none_can_be_made_or_deleted(self, admin: KafkaAdminClient) -> None:
        rule = ACL(*RULE, ResourcePattern(ResourceType.TOPIC, "orders"))
        made = admin.create_acls([rule, rule])
        assert made == {"succeeded": [], "failed": [kafka_errors.SecurityDisabledError] * 2}
        ((_, deleted, error),) = admin.delete_acls([rule])
        assert (deleted, error) == ([], kafka_errors.SecurityDisabledError)

    @pytest.mark.compat
    def test_kafkas_tool(self, broker: Broker) -> None:
        server = ("--bootstrap-server", broker.bootstrap)
        done = java_tool(f"{TOOLS}.AclCommand", *server, "--list", check=False)
        assert "SecurityDisabledException" in done.stdout + done.stderr

    def test_users(self, admin: KafkaAdminClient) -> None:
        assert admin.describe_user_scram_credentials() == {}
        (found,) = admin.describe_user_scram_credentials(["alice"]).values()
        assert found["error"] and found["credential_infos"] == []
        gone = UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256)
        (refused,) = admin.alter_user_scram_credentials([gone]).values()
        assert refused

    def test_no_password_is_taken(self, broker: Broker, admin: KafkaAdminClient) -> None:
        if broker.name == "kafka":
            pytest.skip("a Kafka keeps passwords even if it asks nobody for one")
        new = UserScramCredentialUpsertion("alice", ScramMechanism.SCRAM_SHA_256, b"secret")
        (refused,) = admin.alter_user_scram_credentials([new]).values()
        assert refused.startswith("there is no access control")


class TestFeatures:
    def test_the_level_in_force_is_confirmed(self, admin: KafkaAdminClient) -> None:
        known = admin.describe_features()
        levels = {
            name: feature["finalized"][1]
            for name, feature in known.items()
            if "finalized" in feature
        }
        assert "metadata.version" in levels
        for name, level in levels.items():
            assert admin.update_features({name: level}) == {name: "OK"}

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_others_are_refused(self, wire: Wire, version: int) -> None:
        update = UpdateFeaturesRequest.FeatureUpdateKey
        request = UpdateFeaturesRequest(
            timeout_ms=9000,
            feature_updates=[
                update(
                    feature="no.such.version",
                    max_version_level=1,
                    allow_downgrade=False,
                    upgrade_type=1,
                )
            ],
            validate_only=False,
        )
        answer = wire.call(request, version)
        assert answer.error_code == INVALID_UPDATE_VERSION
        assert answer.error_message
        if version < 2:
            assert answer.results == []

    @pytest.mark.compat
    def test_kafkas_tool(self, broker: Broker) -> None:
        server = ("--bootstrap-server", broker.bootstrap)
        done = java_tool(f"{TOOLS}.FeatureCommand", *server, "describe")
        assert "Feature: metadata.version" in done.stdout


class TestConfigResources:
    def test_topics_and_this_node(self, admin: KafkaAdminClient, topic: str, node: int) -> None:
        found = admin.list_config_resources(["TOPIC", "BROKER"])
        assert topic in found["topic"]
        assert found["broker"] == [str(node)]
        assert topic in admin.list_config_resources()["topic"]
        assert "broker" not in admin.list_config_resources(["TOPIC"])

    def test_what_is_not_there(self, wire: Wire) -> None:
        assert wire.call(ListConfigResourcesRequest(), 0).config_resources == []
        refused = wire.call(ListConfigResourcesRequest(resource_types=[3]), 1)
        assert refused.error_code == Code.UNSUPPORTED_VERSION
        metrics = wire.call(ListConfigResourcesRequest(resource_types=[16]), 1)
        assert (metrics.error_code, metrics.config_resources) == (0, [])
