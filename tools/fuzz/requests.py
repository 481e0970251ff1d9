"""Whole requests of every API and version, through the real dispatcher and the real handlers.

An input is a stream of frames as a connection would receive it, for a broker with a few topics.
Afterwards somebody else, who did nothing wrong, must find his topic in working order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from struct import pack, unpack_from
from typing import Any

from tests.clients.wire import fetch_request, produce_request

from penstock.broker.topic_config import SETTINGS
from penstock.errors import PenstockError
from penstock.kafka.apis import APIS
from penstock.record.batch import checked
from penstock.record.encode import NewRecord, encode
from penstock.wire.codec import Message, MessageClass
from tools.fuzz.decoders import NOW, batches
from tools.fuzz.mutate import fix_batch_checksum, garbage, mutated
from tools.fuzz.stage import BYSTANDER, TOPICS, Stage, copied_disk, topic_id
from tools.fuzz.target import BrokenError, Step, Target

_FRAMES = 25
_NAMED = 12  # the last version of Produce and Fetch that names topics
_NAMES = (*TOPICS, *TOPICS, "absent", "new", "", ".", "..", "a/b", "x" * 249, "x" * 250, "caf\xe9")
_TEXTS = (
    *SETTINGS,
    *("-1", "0", "1", "1000", "delete", "compact", ",", "zstd", "9" * 5000, "1e400", "\x00"),
    "\U0001f600" * 40,
    "y" * 32_760,
)
_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_SMALL = (-2, -1, 0, 0, 0, 1, 1, 2, 3, 4, 5, 7, 100)
_IDS = (*map(topic_id, TOPICS), topic_id("absent"), None)
_CHOICES: dict[str, Callable[[], Sequence[Any]]] = {
    "uuid": lambda: _IDS,
    "bool": lambda: (True, False),
    "bytes": batches,
    "records": batches,
    "uint16": lambda: (0, 1, 2**16 - 1),
    "float64": lambda: (0.0, -1.5, float("inf")),
}


class Messages:
    """Random requests that follow the schema, and now and then put null where it does not allow it."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def frame(self, request: MessageClass, version: int) -> bytes:
        """A request with its header."""
        message = self._struct(request._struct, request, version)
        message.API_VERSION = version
        message.with_header(correlation_id=self._random.randrange(2**31), client_id="fuzz")
        return bytes(message.encode(version=version, header=True))

    def _struct(self, struct: Any, data_class: MessageClass, version: int) -> Message:
        fields = [field for field in struct.fields.values() if field.for_version_q(version)]
        return data_class(**{field.name: self._value(field, version) for field in fields})

    def _value(self, field: Any, version: int) -> Any:
        random = self._random
        if random.random() < (0.2 if field.nullable_for_version_q(version) else 0.01) and (
            field.is_array() or field.is_struct() or field.type_str in ("string", "bytes")
        ):
            return None
        if field.is_array():
            items = range(random.choice((0, 1, 1, 1, 2, 3)))
            if field.is_struct_array():
                return [self._struct(field.array_of, field.data_class, version) for _ in items]
            return [self._simple(field.array_of.type_str) for _ in items]
        if field.is_struct():
            return self._struct(field, field.data_class, version)
        return self._simple(field.type_str)

    def _simple(self, kind: str) -> Any:
        random = self._random
        if kind == "string":
            return random.choice(_NAMES if random.random() < 0.6 else _TEXTS)
        if kind in _BITS:
            return self._number(_BITS[kind])
        return random.choice(_CHOICES[kind]())

    def _number(self, bits: int) -> int:
        random = self._random
        if random.random() < 0.8:
            value = random.choice((*_SMALL, NOW + random.randrange(50)))
            return value if abs(value) < 1 << bits else 1
        return random.choice((-(1 << bits), (1 << bits) - 1))


class Requests(Target):
    """One API, in all its versions."""

    parts = _FRAMES
    key: int

    def _generate(self, random: Random) -> bytes:
        messages = Messages(random)
        api = APIS[self.key]
        frames = [
            messages.frame(api.request, random.randrange(api.lowest, api.highest + 1))
            for _ in range(_FRAMES)
        ]
        return _stream(_spoilt(random, frame, frames) for frame in frames)

    def _run(self, data: bytes, step: Step) -> None:
        stage = Stage(copied_disk())
        for frame in _frames(data):
            step()
            with suppress(PenstockError):
                stage.ask(frame)
        step()
        work(stage)

    def _smaller(self, data: bytes) -> list[bytes]:
        frames = _frames(data)
        without = [frames[:at] + frames[at + 1 :] for at in range(len(frames))]
        return [_stream(rest) for rest in without if rest]


class Mixed(Requests):
    """Everything in any order: topics come and go under requests that name them."""

    name = "mixed"
    share = 60_000

    def _generate(self, random: Random) -> bytes:
        messages = Messages(random)
        apis = random.choices(list(APIS.values()), k=_FRAMES)
        frames = [
            messages.frame(api.request, random.randrange(api.lowest, api.highest + 1))
            for api in apis
        ]
        return _stream(_spoilt(random, frame, frames) for frame in frames)


class Appends(Requests):
    """Batches that are wrong inside and right outside, into topics of every kind, and back again."""

    name = "append"
    share = 60_000

    def _generate(self, random: Random) -> bytes:
        corpus = batches()
        frames: list[bytes] = []
        for _ in range(_FRAMES):
            kind = random.random()
            if kind < 0.6:
                frames.append(_append(random, corpus))
            else:
                key = 1 if kind < 0.8 else 2
                version = random.randrange(APIS[key].lowest, APIS[key].highest + 1)
                frames.append(Messages(random).frame(APIS[key].request, version))
        return _stream(frames)


def _append(random: Random, corpus: Sequence[bytes]) -> bytes:
    data = bytearray(mutated(random, random.choice(corpus), corpus))
    if len(data) > 61:
        # A header that the broker lets through, so that what comes after it is reached.
        data[8:12] = pack(">i", len(data) - 12)
        data[16] = 2
        data[21:23] = pack(">h", random.randrange(5))
        count = random.choice((1, 2, 12, 2**31 - 1))
        data[23:27] = pack(">i", count - 1)
        data[57:61] = pack(">i", count)
        if random.random() < 0.7:
            data[35:43] = pack(">q", NOW + random.randrange(1000))
            data[43:51] = pack(">q", -1)
        fix_batch_checksum(data)
    acks = random.choice((-1, -1, 1, 0))
    request = produce_request(random.choice(list(TOPICS)), {0: bytes(data)}, acks=acks)
    return _framed(request, random.randrange(3, _NAMED + 1))


class Headers(Requests):
    """What no API claims: garbage, and good requests whose key, version or client id is not."""

    name = "header"
    share = 20_000

    def _generate(self, random: Random) -> bytes:
        frames: list[bytes] = []
        for _ in range(_FRAMES):
            if random.random() < 0.4:
                frames.append(garbage(random, 100))
                continue
            api = APIS[random.choice(list(APIS))]
            frame = bytearray(Messages(random).frame(api.request, api.highest))
            start = random.choice((0, 2, 8, 10))
            frame[start : start + 2] = random.choice(
                (pack(">h", random.randrange(100)), b"\xff\xff")
            )
            frames.append(bytes(frame))
        return _stream(frames)


def _spoilt(random: Random, frame: bytes, frames: Sequence[bytes]) -> bytes:
    """Four of ten are left alone: odd values in good form reach the handlers."""
    kind = random.random()
    if kind < 0.4:
        return frame
    if kind < 0.45:
        return frame[:14] + garbage(random, 300)
    return frame[:8] + mutated(random, frame[8:], [other[8:] for other in frames])


def work(stage: Stage) -> None:
    """What a well-behaved client does; it must succeed."""
    values = [b"still here"]
    batch = bytes(encode([NewRecord(value, timestamp=NOW) for value in values]))
    answer = stage.ask(_framed(produce_request(BYSTANDER, {0: batch}), _NAMED)).data or b""
    # Correlation id, no tags, one topic with its name, one partition: its number and its error code.
    (code,) = unpack_from(">h", answer, 8 + 1 + 1 + 1 + len(BYSTANDER) + 1 + 4)
    if code != 0:
        raise BrokenError(f"a good client's append failed with code {code}")
    found = stage.ask(_framed(fetch_request(BYSTANDER, {0: 0}), _NAMED)).data or b""
    start = found.find(batch[16:])
    if start < 0:
        raise BrokenError("a good client did not get its record back")
    checked(found, start - 16)


def _framed(request: Any, version: int) -> bytes:
    request.API_VERSION = version
    request.with_header(correlation_id=1, client_id="good")
    return bytes(request.encode(version=version, header=True))


def _stream(frames: Any) -> bytes:
    return b"".join(pack(">i", len(frame)) + frame for frame in frames)


def _frames(stream: bytes) -> list[bytes]:
    frames: list[bytes] = []
    position = 0
    while position + 4 <= len(stream):
        (size,) = unpack_from(">i", stream, position)
        frames.append(stream[position + 4 : position + 4 + size])
        position += 4 + size
    return frames


def _one(key: int) -> type[Requests]:
    name = "request-" + APIS[key].request.__name__.removesuffix("Request")
    return type(name, (Requests,), {"name": name, "share": 16_000, "key": key})


REQUESTS: tuple[type[Target], ...] = (*map(_one, APIS), Mixed, Appends, Headers)
