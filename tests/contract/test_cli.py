"""The command line end to end: real processes, on Penstock and (marker `compat`) on a real Kafka."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from tests.clients.brokers import Broker
from tests.support.commands import PENSTOCK, Commands

from penstock.client.connection import admin, library
from penstock.errors import UsageError
from penstock.twophase import TwoPhaseProducer

SECONDS_MAX = 60.0
# Larger than what a client fetches ahead, so that a reader can be overtaken.
READ_AHEAD_BYTES = 8_000_000


@pytest.fixture
def cli(broker: Broker) -> Commands:
    return Commands(broker.bootstrap)


@pytest.fixture
def topic(cli: Commands) -> str:
    """A topic with three partitions."""
    name = f"cli-{uuid.uuid4().hex[:8]}"
    cli.ok("topics", "create", name, "--partitions", "3")
    return name


@pytest.fixture
def narrow(cli: Commands) -> str:
    """A topic with one partition and small segments."""
    name = f"cli-{uuid.uuid4().hex[:8]}"
    cli.ok("topics", "create", name, "--partitions", "1", "--config", "segment.bytes=1048576")
    return name


def delete_before(cli: Commands, topic: str, offset: int) -> None:
    with admin(cli.bootstrap, "delete records") as client:
        client.delete_records({library().TopicPartition(topic, 0): offset})


# -- transactions


def test_transactions(cli: Commands, topic: str) -> None:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    settings = {"bootstrap.servers": cli.bootstrap, "transactional.id": name, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(30)
    assert "none is open" in cli.refused(5, "transactions", "abort", name)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    producer.flush(30)
    listed = json.loads(cli.ok("transactions", "list", "--open", "--json"))
    (found,) = (one for one in listed if one["name"] == name)
    assert (found["state"], found["partitions"]) == ("Ongoing", [f"{topic}-0"])
    assert name in cli.ok("transactions", "list")
    done = cli.run("transactions", "abort", name)
    assert f"aborted the transaction of {name} ({topic}-0)" in done.stderr
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)
    assert "nobody uses that id" in cli.refused(3, "transactions", "abort", "no")


@pytest.mark.parametrize(("verb", "past"), [("commit", "committed"), ("abort", "aborted")])
def test_a_prepared_transaction_is_ended_by_name(
    broker: Broker, cli: Commands, topic: str, verb: str, past: str
) -> None:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    if broker.name == "kafka":
        with pytest.raises(UsageError, match="no two-phase transactions"):
            TwoPhaseProducer(cli.bootstrap, name)
        return
    with TwoPhaseProducer(cli.bootstrap, name) as producer:
        producer.recover("")
        producer.send(topic, b"x", partition=0)
        producer.prepare()
    cli.ok("produce", topic, "--partition", "0", data=b"after\n")
    listed = json.loads(cli.ok("transactions", "list", "--open", "--json"))
    (found,) = (one for one in listed if one["name"] == name)
    assert (found["two_phase"], found["timeout_seconds"]) == (True, None)
    assert found["open_seconds"] > 0
    assert "two-phase" in cli.ok("transactions", "list")
    read = ("consume", topic, "--partition", "0", "--from", "start")
    assert cli.ok(*read) == ""
    assert "add --yes" in cli.refused(2, "transactions", verb, name)
    done = cli.run("transactions", verb, name, "--yes")
    assert f"{past} the transaction of {name} ({topic}-0)" in done.stderr
    assert cli.ok(*read).splitlines() == ["x", "after"][verb == "abort" :]
    assert "none is open" in cli.refused(5, "transactions", verb, name, "--yes")


def test_an_ordinary_transaction_is_not_committed_by_name(cli: Commands, topic: str) -> None:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    settings = {"bootstrap.servers": cli.bootstrap, "transactional.id": name, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    producer.flush(30)
    refused = cli.refused(2, "transactions", "commit", name, "--yes")
    assert "not a two-phase transaction" in refused
    producer.commit_transaction(30)


# -- topics


def test_create_and_describe(cli: Commands) -> None:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    made = cli.run("topics", "create", name, "-p", "2", "-c", "retention.ms=86400000")
    assert made.code == 0
    assert made.stderr == f"created {name} with 2 partitions, replication factor 1\n"
    text = cli.ok("topics", "describe", name)
    assert f"topic               {name}\n" in text
    assert "PARTITION  LEADER  REPLICAS  IN SYNC  EARLIEST  LATEST\n" in text
    assert "retention.ms  86400000  topic\n" in text
    facts = json.loads(cli.ok("topics", "describe", name, "--json"))
    assert facts["partition_count"] == 2
    assert facts["replication_factor"] == 1
    assert len(facts["id"]) == 22
    assert [one["partition"] for one in facts["partitions"]] == [0, 1]
    assert facts["configs"] == [{"name": "retention.ms", "value": "86400000", "from": "topic"}]


def test_describe_shows_offsets(cli: Commands, narrow: str) -> None:
    cli.ok("produce", narrow, data=b"a\nb\nc\n")
    delete_before(cli, narrow, 2)
    (partition,) = json.loads(cli.ok("topics", "describe", narrow, "-o", "json"))["partitions"]
    assert (partition["earliest"], partition["latest"]) == (2, 3)


def test_describe_all_puts_what_was_set_first(cli: Commands, narrow: str) -> None:
    configs = json.loads(cli.ok("topics", "describe", narrow, "--all", "--json"))["configs"]
    assert configs[0]["name"] == "segment.bytes"
    assert len(configs) > 10
    rest = [config["name"] for config in configs[1:]]
    assert rest == sorted(rest)
    assert all(config["from"] != "topic" for config in configs[1:])


def test_list(cli: Commands, topic: str) -> None:
    text = cli.ok("topics", "list")
    assert text.startswith("TOPIC")
    assert topic in text
    facts = json.loads(cli.ok("topics", "list", "--json"))
    (mine,) = [one for one in facts if one["name"] == topic]
    assert mine["partition_count"] == 3
    assert not mine["internal"]


def test_configure(cli: Commands, topic: str) -> None:
    cli.ok("topics", "configure", topic, "--set", "retention.ms=5000")
    args = ["--set", "retention.bytes=1000000", "--unset", "retention.ms"]
    assert cli.ok("topics", "configure", topic, *args).splitlines() == [
        "CONFIG           VALUE      FROM",
        "retention.bytes  1000000    topic",
        "retention.ms     604800000  default",
    ]


def test_add_partitions(cli: Commands, topic: str) -> None:
    done = cli.run("topics", "configure", topic, "--partitions", "5")
    assert (done.code, done.stdout) == (0, b"")
    assert done.stderr == f"{topic} has 5 partitions now\n"
    cli.ok("produce", topic, "--partition", "4", data=b"x\n")
    assert [one["partition"] for one in cli.consumed(topic)] == [4]
    grown = json.loads(cli.ok("topics", "configure", topic, "-p", "6", "--json"))
    assert (grown["partition_count"], len(grown["partitions"])) == (6, 6)


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["topics", "configure", "{topic}", "--partitions", "3"], 2, "3 partition"),
        (["topics", "configure", "{topic}x", "--partitions", "3"], 3, "did you mean {topic}?"),
        (["topics", "configure", "{topic}", "-p", "4", "--set", "a=1"], 2, "of its own"),
        (["topics", "create", "{topic}"], 5, "already exists"),
        (["topics", "create", "no/name"], 2, "cannot create topic no/name: "),
        (["topics", "create", "x", "-p", "0"], 2, "partitions"),
        (["topics", "create", "x", "--replication-factor", "9"], 2, "cannot create topic x: "),
        (["topics", "create", "x", "-c", "no.such=1"], 2, "no.such"),
        (["topics", "create", "x", "-c", "retention.ms=soon"], 2, "retention.ms"),
        (["topics", "configure", "{topic}", "--set", "retention.m=1"], 2, "mean retention.ms?"),
        (["topics", "configure", "{topic}", "--set", "retention.ms=soon"], 2, "retention.ms"),
        (["topics", "configure", "{topic}", "--unset", "retention.m"], 2, "mean retention.ms?"),
        (
            ["topics", "configure", "{topic}", "--unset", "zzz"],
            2,
            "no setting zzz; `penstock topics",
        ),
        (["topics", "configure", "{topic}x", "--set", "a=1"], 3, "did you mean {topic}?"),
        (["topics", "describe", "{topic}x"], 3, "did you mean {topic}?"),
        (["topics", "describe", "zzz"], 3, "there is no topic zzz"),
        (["topics", "delete", "{topic}", "{topic}x", "--yes"], 3, "did you mean {topic}?"),
        (["produce", "zzz"], 3, "create it with `penstock topics create zzz`"),
        (["produce", "{topic}", "-p", "3"], 3, "it has no partition 3; use one from 0 to 2"),
        (["consume", "{topic}x"], 3, "did you mean {topic}?"),
        (["consume", "{topic}", "-p", "3"], 3, "it has no partition 3; use one from 0 to 2"),
    ],
)
def test_refusals(cli: Commands, topic: str, args: list[str], code: int, message: str) -> None:
    before = cli.consumed(topic)
    said = cli.refused(code, *[one.format(topic=topic) for one in args], data=b"x\n")
    assert message.format(topic=topic) in said.splitlines()[-1]
    assert cli.consumed(topic) == before == []


def test_delete(cli: Commands, topic: str) -> None:
    cli.ok("topics", "delete", topic, "--yes")
    assert topic not in [one["name"] for one in json.loads(cli.ok("topics", "list", "--json"))]


def test_trim(cli: Commands, topic: str) -> None:
    for partition in ("0", "2"):
        cli.ok("produce", topic, "--partition", partition, data=b"a\nb\nc\n")
    assert cli.ok("topics", "trim", topic, "--before", "2", "-p", "0", "--yes").splitlines() == [
        "PARTITION  DELETED  EARLIEST  LATEST",
        "        0  0 to 1          2       3",
    ]
    # An offset beyond the end is the end, and one before the start changes nothing.
    table = cli.ok("topics", "trim", topic, "--before", "1", "-y").splitlines()[1:]
    assert [line.split() for line in table] == [
        ["0", "-", "2", "3"],
        ["1", "-", "0", "0"],
        ["2", "0", "to", "0", "1", "3"],
    ]
    assert [one["value"] for one in cli.consumed(topic)] == ["c", "b", "c"]
    trimmed = json.loads(cli.ok("topics", "trim", topic, "--all", "-p", "2", "--yes", "--json"))
    assert trimmed == [{"partition": 2, "earliest_before": 1, "earliest": 3, "latest": 3}]
    cli.ok("produce", topic, "--partition", "2", data=b"d\n")
    assert [one["offset"] for one in cli.consumed(topic, "-p", "2")] == [3]


def test_what_trim_refuses(cli: Commands, topic: str) -> None:
    cli.ok("produce", topic, "-k", ":", data=b"a:1\n")
    assert "use --before OFFSET or --all" in cli.refused(2, "topics", "trim", topic, "--yes")
    both = ("--all", "--before", "1", "--yes")
    assert "one of the two" in cli.refused(2, "topics", "trim", topic, *both)
    assert "add --yes" in cli.refused(2, "topics", "trim", topic, "--all")
    assert "no topic zzz" in cli.refused(3, "topics", "trim", "zzz", "--all", "--yes")
    said = cli.refused(3, "topics", "trim", topic, "--all", "-p", "3", "--yes")
    assert "it has no partition 3; use one from 0 to 2" in said
    assert len(cli.consumed(topic)) == 1
    cli.ok("topics", "configure", topic, "--set", "cleanup.policy=compact")
    assert "its cleanup.policy is compact" in cli.refused(2, "topics", "trim", topic, "--all", "-y")


# -- produce and consume


def test_lines(cli: Commands, narrow: str) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(1000))
    done = cli.run("produce", narrow, data=lines)
    assert (done.code, done.stdout) == (0, b"")
    assert done.stderr.startswith("1,000 records, 7.9 kB, ")
    assert cli.ok("consume", narrow).encode() == lines
    assert cli.run("produce", narrow, "--quiet", data=b"x\n").stderr == ""


def test_keys_headers_and_partition(cli: Commands, topic: str) -> None:
    args = ["-k", ":", "-H", "trace=7", "-H", "trace=8", "--partition", "2"]
    cli.ok("produce", topic, *args, data="alice:hé:y\n:\n".encode())
    first, second = cli.consumed(topic)
    assert (first["topic"], first["partition"], first["offset"]) == (topic, 2, 0)
    assert (first["key"], first["value"]) == ("alice", "hé:y")
    assert first["headers"] == [{"key": "trace", "value": "7"}, {"key": "trace", "value": "8"}]
    assert (second["key"], second["value"]) == ("", "")
    assert cli.ok("consume", topic, "--print-key") == "alice\thé:y\n\t\n"
    assert cli.ok("consume", topic, "--print-key", "-k", " = ", "-n", "1") == "alice = hé:y\n"


def test_equal_keys_go_to_one_partition(cli: Commands, topic: str) -> None:
    cli.ok("produce", topic, "-k", ",", data=b"".join(b"k%d,x\n" % (n % 10) for n in range(100)))
    homes = {(one["key"], one["partition"]) for one in cli.consumed(topic)}
    assert len(homes) == 10
    assert len({partition for _, partition in homes}) > 1


def test_a_topic_is_copied_exactly(cli: Commands, topic: str, tmp_path: Path) -> None:
    records = [
        {"key": "a", "value": {"n": 1}, "partition": 0, "timestamp": "2026-03-01T12:00:00.250Z"},
        {"key": None, "value": "AP8=", "value_encoding": "base64", "partition": 1},
        {"key": "gone", "value": None, "partition": 2, "headers": {"h": "é"}},
        {"key": None, "value": None, "partition": 2, "headers": {"h": ""}},
    ]
    source = tmp_path / "records.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in records))
    # One of them is so old that retention would remove it.
    cli.ok("topics", "configure", topic, "--set", "retention.ms=-1")
    cli.ok("produce", topic, "--json", "--file", str(source))
    copy = f"{topic}-copy"
    cli.ok("topics", "create", copy, "-p", "3", "-c", "retention.ms=-1")
    exported = cli.ok("consume", topic, "--json")
    cli.ok("produce", copy, "--json", data=exported.encode())
    originals = sorted(cli.consumed(topic), key=lambda one: one["partition"])
    copies = sorted(cli.consumed(copy), key=lambda one: one["partition"])
    assert [one | {"topic": ""} for one in originals] == [one | {"topic": ""} for one in copies]
    assert originals[0]["value"] == '{"n": 1}'
    assert originals[0]["timestamp"] == "2026-03-01T12:00:00.250Z"
    assert originals[1]["value_encoding"] == "base64"
    assert originals[2]["value"] is None
    assert (originals[3]["key"], originals[3]["value"]) == (None, None)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression(cli: Commands, narrow: str, codec: str) -> None:
    # Several times the 64 kB that these codecs take as a block.
    lines = b"".join(b"%0199d\n" % number for number in range(2000))
    cli.ok("produce", narrow, "--compression", codec, data=lines)
    assert cli.ok("consume", narrow).encode() == lines


def test_create_on_the_way(cli: Commands) -> None:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    for _ in range(2):
        cli.ok("produce", name, "--create", data=b"hello\n")
    assert cli.ok("consume", name) == "hello\nhello\n"


def test_nothing_is_created_for_a_partition_it_would_not_have(cli: Commands) -> None:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    said = cli.refused(3, "produce", name, "--create", "-p", "9", data=b"hello\n")
    assert f"`penstock topics create {name} --partitions 10`" in said
    assert "there is no topic" in cli.refused(3, "topics", "describe", name)
    for _ in range(2):
        cli.ok("produce", name, "--create", "-p", "0", data=b"hello\n")
    assert cli.ok("consume", name) == "hello\nhello\n"


def test_large_record(cli: Commands, topic: str) -> None:
    large = b"x" * 3_000_000 + b"\n"
    said = cli.refused(2, "produce", topic, data=b"small\n" + large)
    assert said.splitlines()[0].startswith("acknowledged 1 record, 5 B, ")
    assert said.splitlines()[0].endswith("; 1 not acknowledged")
    assert "configure" in said
    cli.ok("topics", "configure", topic, "--set", "max.message.bytes=4000000")
    cli.ok("produce", topic, data=large)
    assert {len(one["value"]) for one in cli.consumed(topic)} == {5, 3_000_000}


def test_bad_input_keeps_what_came_before(cli: Commands, narrow: str) -> None:
    data = b'{"value": 1}\n{"value": 2}\n{"valeu": 3}\n{"value": 4}\n'
    said = cli.refused(2, "produce", narrow, "--json", data=data).splitlines()
    assert said[0].startswith("acknowledged 2 records, 2 B, ")
    assert said[1].startswith("error: cannot read line 3: 'valeu' is not a field of a record")
    assert cli.ok("consume", narrow) == "1\n2\n"


def test_where_to_start(cli: Commands, narrow: str) -> None:
    old = '{"value": "old", "timestamp": "2020-01-01T00:00:00Z"}\n{"value": "old2"}\n'
    cli.ok("produce", narrow, "--json", data=old.encode())
    cli.ok("produce", narrow, data=b"c\nd\n")
    assert cli.ok("consume", narrow, "--from", "start") == "old\nold2\nc\nd\n"
    assert cli.ok("consume", narrow, "--from", "end") == ""
    assert cli.ok("consume", narrow, "--from", "2") == "c\nd\n"
    assert cli.ok("consume", narrow, "--from", "-1") == "d\n"
    assert cli.ok("consume", narrow, "--from", "1h") == "old2\nc\nd\n"
    assert cli.ok("consume", narrow, "--from", "2019-12-31T23:00:00Z") == "old\nold2\nc\nd\n"
    assert cli.ok("consume", narrow, "--from", "2100-01-01") == ""
    assert cli.ok("consume", narrow, "--max", "2") == "old\nold2\n"
    assert cli.ok("consume", narrow, "--from", "1", "-n", "1") == "old2\n"


def test_empty_topic(cli: Commands, topic: str) -> None:
    assert cli.ok("consume", topic) == ""


def test_follow_until_interrupted(cli: Commands, narrow: str) -> None:
    cli.ok("produce", narrow, data=b"before\n")
    with cli.start("consume", narrow, "--follow", "--from", "start") as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"before\n"
        cli.ok("produce", narrow, data=b"after\n")
        assert follower.stdout.readline() == b"after\n"
        follower.send_signal(signal.SIGINT)
        assert follower.wait(SECONDS_MAX) == 130
        assert follower.stderr is not None and follower.stderr.read() == b""


def test_follow_up_to_a_number(cli: Commands, narrow: str) -> None:
    with cli.start("consume", narrow, "--follow", "--max", "2") as follower:
        cli.ok("produce", narrow, data=b"a\nb\nc\n")
        assert follower.communicate(timeout=SECONDS_MAX)[0] == b"a\nb\n"
        assert follower.returncode == 0


def test_topic_deleted_under_a_follower_stays_deleted(cli: Commands, narrow: str) -> None:
    cli.ok("produce", narrow, data=b"a\n")
    with cli.start("consume", narrow, "--follow") as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"a\n"
        cli.ok("topics", "delete", narrow, "--yes")
        _, err = follower.communicate(timeout=SECONDS_MAX)
    assert follower.returncode == 3
    assert f"there is no topic {narrow}" in err.decode()
    cli.refused(3, "topics", "describe", narrow)


def test_gone_offsets_are_reported(cli: Commands, narrow: str) -> None:
    cli.ok("produce", narrow, data=b"a\nb\nc\n")
    delete_before(cli, narrow, 2)
    done = cli.run("consume", narrow, "--from", "0")
    assert (done.code, done.stdout) == (1, b"c\n")
    assert f"offsets 0 to 1 of {narrow} partition 0 are gone: 2 records deleted" in done.stderr
    followed = cli.run("consume", narrow, "--from", "1", "--follow", "-n", "1")
    assert (followed.code, followed.stdout) == (0, b"c\n")
    assert f"offset 1 of {narrow} partition 0 is gone: 1 record deleted" in followed.stderr
    assert cli.ok("consume", narrow, "--from", "start") == "c\n"


def test_reader_that_is_overtaken_is_told(cli: Commands, narrow: str) -> None:
    count = READ_AHEAD_BYTES // 1000
    cli.ok("produce", narrow, data=b"".join(b"%0999d\n" % number for number in range(count)))
    with cli.start("consume", narrow) as reader:
        # Its output is not read: it stands still with the pipe full and little fetched ahead.
        time.sleep(3)
        delete_before(cli, narrow, count - 10)
        out, err = reader.communicate(timeout=SECONDS_MAX)
    read = [int(line) for line in out.splitlines()]
    assert reader.returncode == 1
    assert read[-10:] == list(range(count - 10, count))
    last = read[-11]
    assert read[:-10] == list(range(last + 1))
    gone = f"offsets {last + 1} to {count - 11} of {narrow} partition 0 are gone"
    assert gone in err.decode()


def test_reader_that_goes_away(cli: Commands, narrow: str) -> None:
    cli.ok("produce", narrow, data=(b"x" * 999 + b"\n") * 1000)
    with cli.start("consume", narrow) as writer:
        assert writer.stdout is not None and writer.stderr is not None
        writer.stdout.read(100)
        writer.stdout.close()
        assert writer.wait(SECONDS_MAX) == 141
        assert writer.stderr.read() == b""


def test_produce_interrupted_keeps_what_was_read(cli: Commands, narrow: str) -> None:
    with cli.start("produce", narrow, stdin=subprocess.PIPE) as producer:
        assert producer.stdin is not None and producer.stderr is not None
        producer.stdin.write(b"one\n")
        producer.stdin.flush()
        while not cli.consumed(narrow):
            time.sleep(0.1)
        producer.send_signal(signal.SIGINT)
        assert producer.wait(SECONDS_MAX) == 130
        assert producer.stderr.read().startswith(b"acknowledged 1 record, 3 B, ")


# -- brokers that come and go


@pytest.fixture
def address() -> str:
    """One that two servers in a row can have."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def serve(folder: Path, address: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [*PENSTOCK, "serve", "--data", str(folder), "--kafka", address, "--http", "off"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline().decode() == f"kafka listening on {address}\n"
            assert server.stdout.readline() == b"ready\n"
            yield server
        finally:
            server.kill()


def test_broker_that_dies_and_comes_back(tmp_path: Path, address: str) -> None:
    cli = Commands(address)
    with serve(tmp_path, address) as server:
        cli.ok("produce", "orders", "--create", data=b"one\n")
        with (
            cli.start("consume", "orders", "--follow") as follower,
            cli.start("produce", "orders", "--timeout", "20", stdin=subprocess.PIPE) as producer,
        ):
            assert follower.stdout is not None and producer.stdin is not None
            assert follower.stdout.readline() == b"one\n"
            producer.stdin.write(b"two\n")
            producer.stdin.flush()
            assert follower.stdout.readline() == b"two\n"
            server.kill()
            server.wait()
            assert "connection refused" in cli.refused(6, "topics", "list")
            with serve(tmp_path, address) as second:
                producer.communicate(b"three\n", timeout=SECONDS_MAX)
                assert producer.returncode == 0
                assert follower.stdout.readline() == b"three\n"
                follower.kill()
                second.terminate()
                assert second.wait(SECONDS_MAX) == 0


def test_broker_that_dies_is_a_failure_of_produce(tmp_path: Path, address: str) -> None:
    cli = Commands(address)
    with serve(tmp_path, address) as server:
        cli.ok("topics", "create", "orders")
        with cli.start("produce", "orders", "--timeout", "2", stdin=subprocess.PIPE) as producer:
            assert producer.stdin is not None
            producer.stdin.write(b"one\n")
            producer.stdin.flush()
            while not cli.consumed("orders"):
                time.sleep(0.1)
            server.kill()
            server.wait()
            _, err = producer.communicate(b"two\nthree\n", timeout=SECONDS_MAX)
    assert producer.returncode == 6
    said = err.decode().splitlines()
    assert said[0].startswith("acknowledged 1 record, 3 B, ")
    assert said[0].endswith("; 2 not acknowledged")
    assert said[1].startswith("error: cannot produce to orders: ")
    assert len(said) == 2


def test_second_server_on_the_same_folder_or_address(tmp_path: Path, address: str) -> None:
    def refused(folder: Path, wanted: str) -> str:
        with Commands(address).start("serve", "--data", str(folder), "--kafka", wanted) as second:
            out, err = second.communicate(timeout=SECONDS_MAX)
        assert (second.returncode, out) == (5, b"")
        return err.decode()

    with serve(tmp_path / "one", address) as server:
        assert f"cannot open data folder {tmp_path / 'one'}" in refused(tmp_path / "one", "[::1]:0")
        assert f"cannot listen on {address}" in refused(tmp_path / "two", address)
        server.send_signal(signal.SIGTERM)
        assert server.wait(SECONDS_MAX) == 0
