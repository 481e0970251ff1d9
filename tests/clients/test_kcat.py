"""kcat, the command-line client, with the librdkafka of its own time."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import pytest
from tests.clients.brokers import Broker
from tests.clients.contract import (
    DEADLINE,
    MEBIBYTE,
    Code,
    MakeTopic,
    Record,
    Refused,
    Stored,
    numbered,
)
from tests.clients.scenarios import HEADERS, WIDE, ReadingScenarios, WritingScenarios
from tests.clients.wire import Wire, build_batch, produce_request

ERRORS = {
    b"Broker: Message size too large": Code.MESSAGE_TOO_LARGE,
    b"Broker: Offset out of range": Code.OFFSET_OUT_OF_RANGE,
    b"Broker: Unknown topic or partition": Code.UNKNOWN_TOPIC_OR_PARTITION,
}


class Kcat:
    """The adapter."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def run(self, *arguments: str, stdin: bytes = b"", **settings: object) -> bytes:
        """What kcat prints; settings are librdkafka's, with underscores for dots."""
        command = ["kcat", "-b", self.bootstrap, *arguments]
        for name, value in settings.items():
            command += ["-X", f"{name.replace('_', '.')}={value}"]
        done = subprocess.run(
            command, input=stdin, capture_output=True, timeout=DEADLINE, check=False
        )
        if done.returncode:
            codes = [code for text, code in ERRORS.items() if text in done.stderr]
            assert codes, f"kcat ended with status {done.returncode}: {done.stderr!r}"
            raise Refused(codes[0])
        return done.stdout

    def write(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        partition: int = 0,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        keyed = records[0].key is not None
        lines = [
            (record.key or b"") + b"\t" + (record.value or b"") if keyed else record.value or b""
            for record in records
        ]
        self.run(
            *("-P", "-t", topic, "-p", str(partition), "-z", codec),
            *(["-K", "\t"] if keyed else []),
            stdin=b"\n".join(lines),
            acks=acks,
            enable_idempotence=str(idempotent).lower(),
            linger_ms=100,
            message_max_bytes=12 * MEBIBYTE,
        )

    def read(
        self, topic: str, count: int, *, partition: int = 0, start: int | None = None
    ) -> list[Stored]:
        output = self.run(
            *("-C", "-t", topic, "-p", str(partition), "-c", str(count)),
            *("-o", "beginning" if start is None else str(start)),
            *("-f", r"%o %T %K %S\n%k%s%h\n"),
            auto_offset_reset="error",
            check_crcs="true",
        )
        found = []
        while output:
            record, output = parse(output)
            found.append(record)
        return found

    def read_everywhere(self, topic: str, partitions: int) -> dict[int, list[bytes | None]]:
        found: dict[int, list[bytes | None]] = {}
        options = ("-o", "beginning", "-c", str(partitions), "-f", r"%p %s\n")
        for line in self.run("-C", "-t", topic, *options).splitlines():
            partition, _, value = line.partition(b" ")
            found.setdefault(int(partition), []).append(value)
        return found

    def bounds(self, topic: str, partition: int = 0) -> tuple[int, int]:
        return self.query(topic, -2, partition), self.query(topic, -1, partition)

    def offset_at(self, topic: str, timestamp: int, partition: int = 0) -> int | None:
        found = self.query(topic, timestamp, partition)
        return None if found < 0 else found

    def query(self, topic: str, timestamp: int, partition: int) -> int:
        return int(self.run("-Q", "-t", f"{topic}:{partition}:{timestamp}").split()[-1])

    def read_out_of_range(self, topic: str, start: int) -> int:
        with pytest.raises(Refused) as refused:
            self.read(topic, 1, start=start)
        return refused.value.code


def parse(output: bytes) -> tuple[Stored, bytes]:
    """The first record of what `read` had printed, and the rest."""
    numbers, _, rest = output.partition(b"\n")
    offset, timestamp, key_size, value_size = (int(number) for number in numbers.split())
    key, rest = split(rest, key_size)
    value, rest = split(rest, value_size)
    line, _, rest = rest.partition(b"\n")
    headers: list[tuple[str, bytes | None]] = []
    for header in line.split(b",") if line else []:
        name, _, content = header.partition(b"=")
        headers.append((name.decode(), None if content == b"NULL" else content))
    return Stored(offset, value, key, tuple(headers), timestamp), rest


def split(output: bytes, size: int) -> tuple[bytes | None, bytes]:
    """Cut off so many bytes; a negative size stands for null."""
    return (None, output) if size < 0 else (output[:size], output[size:])


@pytest.fixture
def client(broker: Broker) -> Kcat:
    return Kcat(broker.bootstrap)


def test_smoke(client: Kcat, topic: str) -> None:
    client.write(topic, numbered(100), codec="snappy", idempotent=True)
    assert [record.value for record in client.read(topic, 100)] == [
        record.value for record in numbered(100)
    ]


class TestWriting(WritingScenarios):
    pass


class TestReading(ReadingScenarios):
    # kcat prints header values as text, which ends at the first zero byte.
    headers = (*HEADERS[:-1], ("ü", "ß".encode()))


@pytest.mark.compat
class TestMore:
    """What only this client shows."""

    def test_headers_and_nulls(self, client: Kcat, wire: Wire, topic: str) -> None:
        headers = ("-H", "one=1", "-H", "one=2", "-H", "empty=")
        client.run("-P", "-t", topic, "-p", "0", "-Z", "-K", ":", *headers, stdin=b"key:\nk:v\n")
        first, second = wire.stored(topic)
        assert (first.key, first.value) == (b"key", None)
        assert (second.key, second.value) == (b"k", b"v")
        assert first.headers == (("one", b"1"), ("one", b"2"), ("empty", b""))

    def test_from_a_timestamp(self, client: Kcat, wire: Wire, topic: str) -> None:
        wire.write(topic, [Record(str(n).encode(), timestamp=1000 * n) for n in range(1, 11)])
        output = client.run("-C", "-t", topic, "-o", "s@4500", "-o", "e@8000", "-e")
        assert output.split() == [b"5", b"6", b"7"]

    def test_to_the_end(self, client: Kcat, wire: Wire, topic: str) -> None:
        wire.write(topic, numbered(20))
        assert len(client.run("-C", "-t", topic, "-o", "beginning", "-e").splitlines()) == 20
        assert len(client.run("-C", "-t", topic, "-o", "-3", "-e").splitlines()) == 3

    def test_thousand_partitions(self, client: Kcat, wire: Wire, make_topic: MakeTopic) -> None:
        topic = make_topic(partitions=WIDE)
        batches = {index: build_batch([Record(b"for %d" % index)]) for index in range(WIDE)}
        answer = wire.call(produce_request(topic, batches), 12)
        codes = {one.error_code for one in answer.responses[0].partition_responses}
        assert codes == {Code.NONE}
        found = client.read_everywhere(topic, WIDE)
        assert found == {index: [b"for %d" % index] for index in range(WIDE)}

    def test_metadata(self, client: Kcat, broker: Broker, make_topic: MakeTopic) -> None:
        topic = make_topic(partitions=2)
        output = client.run("-L", "-t", topic).decode()
        assert f"at {broker.bootstrap} (controller)" in output
        assert f'topic "{topic}" with 2 partitions' in output

    def test_unknown_topic(self, client: Kcat, topic: str) -> None:
        with pytest.raises(Refused) as refused:
            client.run(
                *("-C", "-t", f"{topic}-not", "-p", "0", "-o", "0", "-e"),
                allow_auto_create_topics="false",
            )
        assert refused.value.code == Code.UNKNOWN_TOPIC_OR_PARTITION
