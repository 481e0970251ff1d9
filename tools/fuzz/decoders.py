"""The decoders that take bytes and know nothing else: the wire and the record batch."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from random import Random
from struct import pack

from kafka.protocol.consumer import OffsetCommitRequest
from tests.clients.wire import fetch_request, produce_request

from penstock.errors import PenstockError
from penstock.limits import FRAME_BYTES_MAX, MIB
from penstock.record.batch import checked, find
from penstock.record.compression import compress, decompress
from penstock.record.decode import decode, read_varint
from penstock.record.encode import NewRecord, encode, varint
from penstock.server.framing import FrameBuffer, FrameError
from penstock.wire.requests import (
    parse_fetch,
    parse_offset_commit,
    parse_produce,
    skip_header_tags,
)
from tools.fuzz.mutate import fix_batch_checksum, garbage, mutated
from tools.fuzz.target import BrokenError, Step, Target

NOW = 1_700_000_000_000
_UNPACKED_MAX = 1 * MIB


@cache
def batches() -> list[bytes]:
    """Good batches of every codec: records with and without keys, values and headers."""
    one = [NewRecord(b"value", b"key", NOW)]
    many = [
        NewRecord(
            b"v" * (n * 7 % 60), None if n % 3 else b"k%d" % n, NOW + n, [("h", None)] * (n % 3)
        )
        for n in range(12)
    ]
    made = [encode(one), encode(many), encode([NewRecord(None)], attributes=0x28)]
    made += [encode(many, codec=codec) for codec in range(1, 5)]
    made.append(encode(many, producer_id=7, producer_epoch=0, base_sequence=0))
    return [bytes(batch) for batch in made]


class _Mutating(Target):
    """Mutates a corpus, with some garbage in between."""

    def __init__(self) -> None:
        self.corpus = self._good()

    def _good(self) -> list[bytes]:
        raise NotImplementedError

    def _generate(self, random: Random) -> bytes:
        if random.random() < 0.05:
            return garbage(random, 300)
        return mutated(random, random.choice(self.corpus), self.corpus)


class Varints(_Mutating):
    """Zigzag varints of records, and the unsigned ones of flexible requests."""

    name = "varint"
    share = 100_000

    def _good(self) -> list[bytes]:
        numbers = (0, 1, -1, 63, 64, 300, -300, 2**31, -(2**31), 2**63 - 1, -(2**63))
        return [varint(number) for number in numbers] + [b"\x02\x00\x01a\x05\x02bc", b"\x00"]

    def _run(self, data: bytes, step: Step) -> None:
        with suppress(PenstockError):
            skip_header_tags(memoryview(data), 0)
        position = 0
        while position < len(data):
            try:
                value, position = read_varint(data, position)
            except IndexError:  # the end of the data: `decode` knows it by this
                return
            if not -(2**69) <= value < 2**69:
                raise BrokenError(f"{value} does not fit ten bytes")


class Batches(_Mutating):
    """Checking, walking and opening record batches; most have the right checksum."""

    name = "batch"
    share = 130_000

    def _good(self) -> list[bytes]:
        return batches()

    def _generate(self, random: Random) -> bytes:
        data = bytearray(super()._generate(random))
        if random.random() < 0.3 and len(data) > 61:
            # The rest of the header and the records stay as they are: the length is right again.
            data[8:12] = pack(">i", len(data) - 12)
        if random.random() < 0.9:
            fix_batch_checksum(data)
        if random.random() < 0.2:
            data += random.choice(self.corpus)
        return bytes(data)

    def _run(self, data: bytes, step: Step) -> None:
        with suppress(PenstockError):
            find(data, 5)
        with suppress(PenstockError):
            find(data, 2**62)
        header = checked(data)
        records = decode(data, limit=_UNPACKED_MAX)
        if len(records) != max(header.record_count, 0):
            raise BrokenError(f"{len(records)} records of {header.record_count}")


class Compression(_Mutating):
    """Unpacking is bounded, whatever the data says. The first byte of an input is the codec."""

    name = "compression"
    share = 40_000

    def _good(self) -> list[bytes]:
        contents = (b"", b"hello", bytes(range(256)) * 8, bytes(100_000), bytes(3 * _UNPACKED_MAX))
        framed = [bytes((n,)) + compress(n, data) for n in range(1, 5) for data in contents]
        bare = [b"\x02" + compress(2, data)[20:] for data in contents]
        return framed + bare

    def _run(self, data: bytes, step: Step) -> None:
        codec, packed = (data[0] % 8, data[1:]) if data else (0, data)
        unpacked = decompress(codec, packed, limit=_UNPACKED_MAX)
        if codec and len(unpacked) > _UNPACKED_MAX:
            raise BrokenError(f"{len(unpacked)} bytes are above the limit")


class _Body(_Mutating):
    """A request's body; the first byte of an input is the version."""

    versions: range

    def _body(self, version: int) -> bytes:
        raise NotImplementedError

    def _good(self) -> list[bytes]:
        return [bytes((version,)) + self._body(version) for version in self.versions]

    def _split(self, data: bytes) -> tuple[memoryview, int]:
        version = data[0] if data else 0
        return memoryview(data)[1:], self.versions.start + version % len(self.versions)


class ProduceBodies(_Body):
    """The parser of Produce."""

    name = "produce"
    share = 110_000
    versions = range(3, 14)

    def _body(self, version: int) -> bytes:
        request = produce_request("orders", dict(enumerate(batches()[:3])))
        return bytes(request.encode(version=version))

    def _run(self, data: bytes, step: Step) -> None:
        body, version = self._split(data)
        request = parse_produce(body, version)
        found = sum(len(batch or b"") for _, parts in request.topics for _, batch in parts)
        if found > len(body):
            raise BrokenError("more records than the request has bytes")


class FetchBodies(_Body):
    """The parser of Fetch."""

    name = "fetch"
    share = 110_000
    versions = range(4, 19)

    def _body(self, version: int) -> bytes:
        request = fetch_request(
            "orders", {0: 0, 1: 17}, session_id=5, session_epoch=2, forgotten={"old": [1, 2]}
        )
        return bytes(request.encode(version=version))

    def _run(self, data: bytes, step: Step) -> None:
        body, version = self._split(data)
        request = parse_fetch(body, version)
        if len(request.partitions) + len(request.forgotten) > len(body):
            raise BrokenError("more partitions than the request has bytes")


class OffsetCommitBodies(_Body):
    """The parser of OffsetCommit."""

    name = "offset-commit"
    share = 50_000
    versions = range(2, 11)

    def _body(self, version: int) -> bytes:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        partition = topic.OffsetCommitRequestPartition
        positions = [partition(partition_index=n, committed_offset=7 * n) for n in range(3)]
        request = OffsetCommitRequest(
            group_id="crew",
            member_id="one",
            generation_id_or_member_epoch=3,
            topics=[topic(name="orders", partitions=positions)],
        )
        return bytes(request.encode(version=version))

    def _run(self, data: bytes, step: Step) -> None:
        body, version = self._split(data)
        request = parse_offset_commit(body, version)
        if sum(len(commits) for _, commits in request.topics) > len(body):
            raise BrokenError("more positions than the request has bytes")


class Frames(_Mutating):
    """Framing gives the same frames however the bytes arrive. The first byte says who trusts whom."""

    name = "framing"
    share = 50_000

    def _good(self) -> list[bytes]:
        frames = [pack(">i", size) + bytes(size) for size in (0, 1, 14, 300)]
        large = [pack(">i", size) for size in (2**16, 2**16 + 1, FRAME_BYTES_MAX, 2**31 - 1, -1)]
        strangers = [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01", b"AMQP\x00\x00\x09\x01"]
        return [*frames, b"".join(frames), *large, *strangers]

    def _run(self, data: bytes, step: Step) -> None:
        whole = _cut(data, len(data) or 1)
        if _cut(data, 1) != whole or _cut(data, 7) != whole:
            raise BrokenError("the frames depend on how the bytes arrive")


def _cut(stream: bytes, piece: int) -> list[bytes]:
    """The frames of a stream that arrives in pieces; the last is the error, if there was one."""
    buffer = FrameBuffer()
    frames: list[bytes] = []
    try:
        for start in range(0, len(stream), piece):
            part = stream[start : start + piece]
            while part:
                space = buffer.space()
                count = min(len(part), len(space))
                space[:count] = part[:count]
                buffer.received(count)
                part = part[count:]
                while (frame := buffer.next_frame()) is not None:
                    frames.append(bytes(frame))
    except FrameError as error:
        frames.append(error.cause.encode())
    return frames


DECODERS: tuple[type[Target], ...] = (
    Varints,
    Batches,
    Compression,
    ProduceBodies,
    FetchBodies,
    OffsetCommitBodies,
    Frames,
)
