"""Bytes in, frames out; large ones cost memory only as they arrive, and strangers are named."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from penstock.limits import (
    FRAME_BYTES_MAX,
    KIB,
    MIB,
    RECEIVE_BUFFER_BYTES_KEPT,
    RECEIVE_BUFFER_BYTES_MIN,
)
from penstock.server.framing import FrameBuffer, FrameError


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def feed(buffer: FrameBuffer, data: bytes, piece: int = 1 << 30) -> Iterator[bytes]:
    """Receive data in pieces, as a loop does, and take every frame."""
    while data:
        space = buffer.space()
        count = min(len(space), len(data), piece)
        space[:count] = data[:count]
        buffer.received(count)
        data = data[count:]
        while (frame := buffer.next_frame()) is not None:
            yield bytes(frame)


@pytest.mark.parametrize("piece", [1, 3, 7, 1000, 1 << 30])
def test_frames_do_not_depend_on_how_bytes_arrive(piece: int) -> None:
    bodies = [b"", b"a", b"bc" * 100, b"", b"d" * 20_000, b"e"]
    buffer = FrameBuffer()
    assert list(feed(buffer, framed(*bodies), piece)) == bodies
    assert buffer.pending() == 0
    assert buffer.total == len(framed(*bodies))


def test_a_frame_is_a_view_that_can_be_patched() -> None:
    buffer = FrameBuffer()
    data = framed(b"abc")
    buffer.space()[: len(data)] = data
    buffer.received(len(data))
    frame = buffer.next_frame()
    assert frame is not None
    frame[0:1] = b"x"
    assert bytes(frame) == b"xbc"


def test_what_is_not_whole_is_pending() -> None:
    buffer = FrameBuffer()
    assert list(feed(buffer, framed(b"whole", b"cut")[:-1])) == [b"whole"]
    assert (buffer.pending(), buffer.wanted()) == (6, 7)
    assert list(feed(buffer, b"t")) == [b"cut"]
    assert (buffer.pending(), buffer.wanted()) == (0, 0)
    assert list(feed(buffer, b"\x00\x00")) == []
    assert (buffer.pending(), buffer.wanted()) == (2, 0)


@pytest.mark.parametrize("first", [b"", framed(b"first")], ids=["first", "later"])
@pytest.mark.parametrize("size", [-1, -(2**31), FRAME_BYTES_MAX + 1, 2**31 - 1])
def test_no_frame_may_be_larger_than_the_largest(size: int, first: bytes) -> None:
    with pytest.raises(FrameError, match=f"a frame of {size} bytes is not accepted"):
        list(feed(FrameBuffer(), first + struct.pack(">i", size)))


@pytest.mark.parametrize("others", [[], [b"small"]], ids=["alone", "among small ones"])
def test_any_frame_may_be_large(others: list[bytes]) -> None:
    bodies = [*others, bytes(range(256)) * 20 * KIB, *others]
    assert list(feed(FrameBuffer(), framed(*bodies), 100_000)) == bodies


@pytest.mark.parametrize(
    ("first", "stranger"),
    [
        (b"GET / HTTP/1.1\r\n", "an HTTP request"),
        (b"POST /topics HTTP/1.1\r\n", "an HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "a TLS handshake"),
        (b"AMQP\x00\x00\x09\x01", "an AMQP client"),
    ],
)
def test_strangers_are_named(first: bytes, stranger: str) -> None:
    for piece in (1, 100):
        with pytest.raises(FrameError, match=f"this looks like {stranger}"):
            list(feed(FrameBuffer(), first, piece))


def test_the_refusal_is_repeated() -> None:
    buffer = FrameBuffer()
    with pytest.raises(FrameError):
        list(feed(buffer, struct.pack(">i", -1)))
    with pytest.raises(FrameError):
        buffer.next_frame()


class TestMemory:
    def test_a_new_buffer_is_small(self) -> None:
        assert len(FrameBuffer().space()) == RECEIVE_BUFFER_BYTES_MIN

    def test_an_announced_frame_costs_little_until_it_arrives(self) -> None:
        buffer = FrameBuffer()
        assert list(feed(buffer, struct.pack(">i", FRAME_BYTES_MAX))) == []
        assert len(buffer.space()) < 2 * RECEIVE_BUFFER_BYTES_KEPT
        arrived = 0
        while arrived < 20 * MIB:
            space = buffer.space()
            assert len(space) <= max(RECEIVE_BUFFER_BYTES_KEPT, 8 * arrived)
            buffer.received(len(space))
            arrived += len(space)
            assert buffer.next_frame() is None

    def test_a_buffer_of_usual_frames_is_kept(self) -> None:
        buffer = FrameBuffer()
        body = b"x" * 1_000_000
        assert list(feed(buffer, framed(body))) == [body]
        assert len(body) < len(buffer.space()) <= RECEIVE_BUFFER_BYTES_KEPT

    def test_a_buffer_is_given_back_after_a_large_frame(self) -> None:
        buffer = FrameBuffer()
        body = b"x" * (3 * MIB)
        assert list(feed(buffer, framed(body) + b"\x00\x00\x00\x02a")) == [body]
        assert len(buffer.space()) > RECEIVE_BUFFER_BYTES_MIN
        buffer.shrink()
        assert len(buffer.space()) < RECEIVE_BUFFER_BYTES_MIN
        assert list(feed(buffer, b"b")) == [b"ab"]

    def test_a_buffer_that_is_filled_again_and_again_is_kept(self) -> None:
        buffer = FrameBuffer()
        body = b"x" * 1_000_000
        assert list(feed(buffer, framed(body))) == [body]
        size = len(buffer.space())
        for _ in range(3):
            assert list(feed(buffer, framed(body, body))) == [body, body]
            assert not buffer.shrink_unless_filled()
            assert len(buffer.space()) == size

    def test_a_buffer_that_nothing_comes_into_is_given_back(self) -> None:
        buffer = FrameBuffer()
        body = b"x" * 1_000_000
        assert list(feed(buffer, framed(body, body))) == [body, body]
        assert not buffer.shrink_unless_filled()
        assert buffer.shrink_unless_filled()
        assert len(buffer.space()) == RECEIVE_BUFFER_BYTES_MIN
        assert not buffer.shrink_unless_filled(), "there is nothing left to give"
        assert list(feed(buffer, framed(body, b"small"))) == [body, b"small"]

    def test_a_buffer_that_only_little_comes_into_is_given_back(self) -> None:
        """Even while the next request has begun: its bytes go with it."""
        for cut in (0, 1, 3, 4, 7):
            buffer = FrameBuffer()
            begun, rest = framed(b"small")[:cut], framed(b"small")[cut:]
            assert len(list(feed(buffer, framed(b"x" * 1_000_000)))) == 1
            buffer.shrink_unless_filled()
            assert len(list(feed(buffer, framed(b"x" * 1_000_000)))) == 1
            assert list(feed(buffer, framed(b"small") + begun)) == [b"small"]
            assert buffer.shrink_unless_filled()
            assert len(buffer.space()) == RECEIVE_BUFFER_BYTES_MIN - cut
            assert list(feed(buffer, rest)) == [b"small"]

    def test_a_frame_that_comes_slowly_keeps_its_room(self) -> None:
        buffer = FrameBuffer()
        data = framed(b"x" * 1_000_000)
        assert list(feed(buffer, data[:5])) == []
        size = len(buffer.space())
        for _ in range(3):
            assert not buffer.shrink_unless_filled()
        assert len(buffer.space()) == size
        assert list(feed(buffer, data[5:])) == [data[4:]]

    def test_frames_that_wait_are_not_lost(self) -> None:
        """They came together and nobody has taken them, as when their client rests."""
        buffer = FrameBuffer()
        assert len(list(feed(buffer, framed(b"x" * 1_000_000)))) == 1
        waiting = framed(*(b"%05d" % number for number in range(5000)))
        buffer.space()[: len(waiting)] = waiting
        buffer.received(len(waiting))
        for _ in range(2):
            assert not buffer.shrink_unless_filled()
        for number in range(5000):
            assert bytes(buffer.next_frame() or b"") == b"%05d" % number

    def test_frames_that_straddle_the_end_of_the_buffer(self) -> None:
        bodies = [bytes([n]) * 5000 for n in range(50)]
        for piece in (4999, 5000, 7001, 16_000):
            assert list(feed(FrameBuffer(), framed(*bodies), piece)) == bodies
