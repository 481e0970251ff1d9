"""Kafka's own Java client, by way of the tools that come with Kafka."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from tests.clients.brokers import Broker
from tests.clients.contract import CODECS, MakeTopic, NewName, Record, eventually, numbered
from tests.clients.scenarios import LARGE, ROOM_FOR_LARGE, WIDE
from tests.clients.wire import EARLIEST, LATEST, Wire, build_batch
from tools.kafka import OLDER, java_tool

TOOLS = "org.apache.kafka.tools"


class Java:
    """The tools, pointed at a broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def run(self, tool: str, *arguments: str, stdin: str | None = None) -> str:
        """What a tool prints; it must succeed."""
        return java_tool(
            f"{TOOLS}.{tool}", "--bootstrap-server", self.bootstrap, *arguments, input=stdin
        ).stdout

    def attempt(self, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A tool that may fail."""
        return java_tool(
            f"{TOOLS}.{tool}", "--bootstrap-server", self.bootstrap, *arguments, check=False
        )

    def configs(self, *arguments: str) -> str:
        return java_tool(
            "kafka.admin.ConfigCommand", "--bootstrap-server", self.bootstrap, *arguments
        ).stdout

    def produce(self, topic: str, count: int, size: int = 100, **settings: object) -> str:
        """ProducerPerformance, which is idempotent unless told otherwise."""
        properties = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        return self.run(
            "ProducerPerformance",
            *("--topic", topic, "--num-records", str(count), "--record-size", str(size)),
            *("--throughput", "-1"),
            *(["--command-property", *properties] if properties else []),
        )

    def consume(self, topic: str, count: int, start: int | str = "earliest") -> list[list[str]]:
        """ConsoleConsumer on one partition, which needs no group: time, offset, headers, ..."""
        shown = ("timestamp", "offset", "headers", "key")
        output = self.run(
            "consumer.ConsoleConsumer",
            *("--topic", topic, "--partition", "0", "--offset", str(start)),
            *("--max-messages", str(count), "--timeout-ms", "60000"),
            *(part for name in shown for part in ("--formatter-property", f"print.{name}=true")),
            *("--formatter-property", "null.literal=NULL"),
        )
        return [line.split("\t") for line in output.splitlines()]


@pytest.fixture
def java(broker: Broker) -> Java:
    return Java(broker.bootstrap)


def test_smoke(java: Java, wire: Wire, topic: str) -> None:
    assert java.produce(topic, 1000, compression_type="zstd").startswith("1000 records sent")
    assert [line[1] for line in java.consume(topic, 1000)] == [f"Offset:{n}" for n in range(1000)]
    assert {batch.codec for batch in wire.batches(topic)} == {"zstd"}


def test_smoke_of_an_older_client(broker: Broker, wire: Wire, topic: str) -> None:
    """Some, this one among them, can use no broker that tells them of levels which they cannot read."""
    sent = java_tool(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", topic, "--num-records", "100", "--record-size", "10", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}", "max.block.ms=20000"),
        jars=OLDER,
    )
    assert sent.stdout.startswith("100 records sent"), sent
    assert len(wire.stored(topic)) == 100
    read = java_tool(
        f"{TOOLS}.VerifiableConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--group-id", topic),
        *("--max-messages", "100", "--reset-policy", "earliest"),
        jars=OLDER,
    )
    events = [json.loads(line) for line in read.stdout.splitlines()]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 100


@pytest.mark.compat
class TestProducer:
    @pytest.mark.parametrize("codec", CODECS)
    def test_codec(self, java: Java, wire: Wire, topic: str, codec: str) -> None:
        assert java.produce(topic, 5000, compression_type=codec).startswith("5000 records sent")
        batches = wire.batches(topic)
        assert {batch.codec for batch in batches} == {codec}
        assert all(batch.producer_id >= 0 for batch in batches)
        assert wire.offset(topic, LATEST) == 5000

    @pytest.mark.parametrize("acks", ["0", "1"])
    def test_acks(self, java: Java, wire: Wire, topic: str, acks: str) -> None:
        java.produce(topic, 1000, acks=acks, enable_idempotence="false")
        eventually(lambda: wire.offset(topic, LATEST) == 1000 or None, "all are there")

    def test_ten_megabytes(self, java: Java, wire: Wire, make_topic: MakeTopic) -> None:
        topic = make_topic(configs=ROOM_FOR_LARGE)
        room = 12 * 1024 * 1024
        assert java.produce(topic, 2, LARGE, max_request_size=room).startswith("2 records sent")
        assert [len(record.value or b"") for record in wire.stored(topic)] == [LARGE] * 2

    def test_too_large(self, java: Java, wire: Wire, make_topic: MakeTopic) -> None:
        topic = make_topic(configs={"max.message.bytes": "1000"})
        done = java.attempt(
            "ProducerPerformance",
            *("--topic", topic, "--num-records", "1", "--record-size", "5000"),
            *("--throughput", "-1"),
        )
        assert "RecordTooLargeException" in done.stdout + done.stderr
        assert wire.offset(topic, LATEST) == 0

    def test_keys_headers_nulls(self, java: Java, wire: Wire, topic: str) -> None:
        java.run(
            "ConsoleProducer",
            *("--topic", topic, "--compression-codec", "lz4"),
            *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
            *("--reader-property", "null.marker=NULL"),
            stdin="one:1,two:2\tkey\tvalue\nNULL\tkey\tNULL\n",
        )
        first, second = wire.stored(topic)
        assert first.content == (b"key", b"value", (("one", b"1"), ("two", b"2")))
        assert second.content == (b"key", None, ())

    def test_topic_is_made_on_first_use(self, java: Java, wire: Wire, new_name: NewName) -> None:
        topic = new_name()
        java.produce(topic, 10)
        assert wire.offset(topic, LATEST) == 10

    def test_thousand_partitions(self, java: Java, wire: Wire, make_topic: MakeTopic) -> None:
        topic = make_topic(partitions=WIDE)
        java.produce(topic, 20_000, batch_size=200)
        listed = java.run("GetOffsetShell", "--topic", topic).splitlines()
        ends = {int(line.split(":")[1]): int(line.split(":")[2]) for line in listed}
        assert sorted(ends) == list(range(WIDE))
        assert sum(ends.values()) == 20_000
        described = java.run("TopicCommand", "--describe", "--topic", topic)
        assert "PartitionCount: 1000" in described
        assert len(re.findall(r"Partition: \d+\tLeader: \d+", described)) == WIDE


@pytest.mark.compat
class TestConsumer:
    def test_everything(self, java: Java, wire: Wire, topic: str) -> None:
        wire.write(topic, [Record(b"v", b"k", (("h", b"1"),), 1000), Record(None, timestamp=2000)])
        assert java.consume(topic, 2) == [
            ["CreateTime:1000", "Offset:0", "h:1", "k", "v"],
            ["CreateTime:2000", "Offset:1", "NO_HEADERS", "NULL", "NULL"],
        ]

    @pytest.mark.parametrize("codec", CODECS)
    def test_from_inside_a_batch(self, java: Java, wire: Wire, topic: str, codec: str) -> None:
        for _ in range(2):
            wire.append(topic, build_batch(numbered(10), codec=codec))
        found = java.consume(topic, 16, start=4)
        assert [line[1] for line in found] == [f"Offset:{n}" for n in range(4, 20)]

    def test_time_of_the_log(self, java: Java, wire: Wire, make_topic: MakeTopic) -> None:
        topic = make_topic(configs={"message.timestamp.type": "LogAppendTime"})
        wire.write(topic, [Record(b"v", timestamp=1000)])
        assert java.consume(topic, 1)[0][0].startswith("LogAppendTime:")

    def test_out_of_range_is_reset(self, java: Java, wire: Wire, topic: str) -> None:
        wire.write(topic, numbered(3))
        output = java.run(
            "consumer.ConsoleConsumer",
            *("--topic", topic, "--partition", "0", "--offset", "99"),
            *("--max-messages", "3", "--command-property", "auto.offset.reset=earliest"),
        )
        assert len(output.splitlines()) == 3

    def test_producer_and_consumer_in_turn(self, java: Java, wire: Wire, topic: str) -> None:
        """EndToEndLatency assigns its partitions and waits for each record that it sends.

        When all is measured and printed it commits, for which the broker must keep offsets.
        """
        output = java.run(
            "EndToEndLatency",
            *("--topic", topic, "--num-records", "500", "--producer-acks", "all"),
            *("--record-size", "100"),
        )
        assert "Avg latency" in output
        assert wire.offset(topic, LATEST) == 500

    def test_consumer_performance(self, java: Java, make_topic: MakeTopic) -> None:
        """It always joins a group."""
        topic = make_topic(partitions=1)
        java.produce(topic, 20_000)
        output = java.run(
            "ConsumerPerformance",
            *("--topic", topic, "--num-records", "20000", "--timeout", "60000"),
            *("--command-property", "auto.offset.reset=earliest"),
        )
        consumed = output.splitlines()[-1].split(", ")[4]
        assert int(consumed) == 20_000


@pytest.mark.compat
class TestTools:
    def test_offsets(self, java: Java, wire: Wire, topic: str) -> None:
        wire.write(topic, [Record(b"x", timestamp=1000 * n) for n in (5, 9, 7)])
        wire.write(topic, [Record(b"x", timestamp=1000 * n) for n in (8, 6)])
        times = {"earliest": 0, "latest": 5, "max-timestamp": 1, "7500": 1, "5000": 0}
        for time, expected in times.items():
            output = java.run("GetOffsetShell", "--topic", topic, "--time", time)
            assert output.split() == [f"{topic}:0:{expected}"], time

    def test_topics(self, java: Java, new_name: NewName) -> None:
        topic = new_name()
        java.run(
            "TopicCommand",
            *("--create", "--topic", topic, "--partitions", "3"),
            *("--config", "retention.ms=3600000"),
        )
        assert topic in java.run("TopicCommand", "--list").split()
        described = java.run("TopicCommand", "--describe", "--topic", topic)
        assert re.search(r"TopicId: \S{22}\tPartitionCount: 3\tReplicationFactor: 1", described)
        assert "retention.ms=3600000" in described
        java.run("TopicCommand", "--alter", "--topic", topic, "--partitions", "4")
        described = java.run("TopicCommand", "--describe", "--topic", topic)
        assert "PartitionCount: 4" in described
        java.run("TopicCommand", "--delete", "--topic", topic)
        assert topic not in java.run("TopicCommand", "--list").split()

    def test_topics_refused(self, java: Java, topic: str) -> None:
        attempts = {
            "already exists": ("--create", "--topic", topic),
            "'with space'": ("--create", "--topic", "with space"),
            "no.such.setting": ("--create", "--topic", "x", "--config", "no.such.setting=1"),
            "retention.ms": ("--create", "--topic", "x", "--config", "retention.ms=soon"),
            "1 partition": ("--alter", "--topic", topic, "--partitions", "1"),
            "does not exist": ("--delete", "--topic", f"{topic}-not"),
        }
        for reason, arguments in attempts.items():
            done = java.attempt("TopicCommand", *arguments)
            assert done.returncode == 1
            assert reason in done.stdout

    def test_configs(self, java: Java, topic: str) -> None:
        entity = ("--entity-type", "topics", "--entity-name", topic)
        added = "retention.ms=60000,cleanup.policy=[delete]"
        java.configs(*entity, "--alter", "--add-config", added)
        described = java.configs(*entity, "--describe")
        assert re.search(
            r"retention.ms=60000 sensitive=false synonyms="
            r"\{DYNAMIC_TOPIC_CONFIG:retention.ms=60000",
            described,
        )
        assert "cleanup.policy=delete sensitive" in described
        java.configs(*entity, "--alter", "--delete-config", "retention.ms")
        everything = java.configs(*entity, "--describe", "--all")
        assert "retention.ms=604800000" in everything
        assert "segment.bytes=1073741824" in everything

    def test_configs_of_the_broker(self, java: Java) -> None:
        described = java.configs("--entity-type", "brokers", "--describe", "--all")
        assert "auto.create.topics.enable=true" in described
        assert "default.replication.factor=1" in described

    def test_delete_records(self, java: Java, wire: Wire, topic: str, tmp_path: Path) -> None:
        wire.write(topic, numbered(10))
        wanted = {"topic": topic, "partition": 0, "offset": 7}
        file = tmp_path / "offsets.json"
        file.write_text(json.dumps({"partitions": [wanted], "version": 1}))
        output = java.run("DeleteRecordsCommand", "--offset-json-file", str(file))
        assert f"{topic}-0\tlow_watermark: 7" in output
        assert wire.offset(topic, EARLIEST) == 7
        assert [line[1] for line in java.consume(topic, 3)] == ["Offset:7", "Offset:8", "Offset:9"]

    def test_log_folders(self, java: Java, wire: Wire, topic: str) -> None:
        wire.write(topic, numbered(10))
        output = java.run("LogDirsCommand", "--describe", "--topic-list", topic)
        (broker,) = json.loads(output.splitlines()[-1])["brokers"]
        (folder,) = broker["logDirs"]
        (partition,) = folder["partitions"]
        assert folder["error"] is None
        assert (partition["partition"], partition["isFuture"]) == (f"{topic}-0", False)
        assert partition["size"] > 100

    def test_cluster_and_versions(self, java: Java, broker: Broker, wire: Wire) -> None:
        identity = java_tool(
            f"{TOOLS}.ClusterTool", "cluster-id", "--bootstrap-server", broker.bootstrap
        ).stdout
        assert re.fullmatch(r"Cluster ID: \S+\n", identity)
        versions = java.run("BrokerApiVersionsCommand")
        offered = wire.versions()
        shown = re.findall(r"\((\d+)\): (\d+)(?: to (\d+))? \[usable: \d+\]", versions)
        assert {int(key): (int(low), int(high or low)) for key, low, high in shown} == offered


@pytest.mark.compat
def test_dump_finds_no_error(java: Java, broker: Broker, wire: Wire, make_topic: MakeTopic) -> None:
    """Kafka's dump tool reads every segment and index that the broker has written."""
    topic = make_topic(configs={"segment.bytes": "1048576"})
    for codec in CODECS:
        java.produce(topic, 10_000, compression_type=codec)
    wire.write(topic, [Record(None), Record(b"v", b"k", (("h", None),))])
    end = wire.offset(topic, LATEST)
    assert end == 10_000 * len(CODECS) + 2
    segments = broker.segments(topic)
    assert len(segments) > 1
    offsets: list[int] = []
    for segment in segments:
        output = dump(segment, "--deep-iteration")
        assert "isvalid: false" not in output
        offsets += [int(number) for number in re.findall(r"^\| offset: (\d+)", output, re.M)]
        for index in (segment.with_suffix(".index"), segment.with_suffix(".timeindex")):
            if index.exists():
                dump(index, "--verify-index-only")
    assert offsets == list(range(end))


def dump(file: Path, *options: str) -> str:
    """The dump of a file, in which the tool must have found nothing to complain about."""
    done = java_tool(f"{TOOLS}.DumpLogSegments", "--files", str(file), *options)
    assert not re.search("^Found|mismatch|corrupt|Exception", done.stdout, re.M | re.I), done.stdout
    # The tool expects every file to begin with offset 0 and says so of all later segments.
    first = f"Non-consecutive offsets in {file}\n  -1 is followed by {int(file.stem)}\n"
    assert done.stderr.replace(first, "") == ""
    return done.stdout
