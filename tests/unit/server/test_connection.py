"""Answers in the order of the requests, and reading only while what is read can be handled."""

from __future__ import annotations

import asyncio
import logging
import struct

import pytest
from tests.unit.server.served import Client, Handler, Reply, Run, Served, framed, serving

from penstock.errors import PenstockError
from penstock.kafka.call import Answer, Peer
from penstock.limits import (
    FRAME_SECONDS_MAX,
    IDLE_SECONDS_MAX,
    KIB,
    MIB,
    RECEIVE_BUFFERS_SHRUNK_MAX,
)
from penstock.server.connection import Connections
from penstock.server.memory import FrameMemory


def echo(frame: bytes) -> bytes:
    return framed(frame)


class TestOrder:
    def test_answers_go_out_in_the_order_of_the_requests(self, run: Run) -> None:
        async def test() -> None:
            async with serving() as served:
                client = await served.client()
                client.send(b"a", b"b", b"c")
                await served.handled(3)
                for at in (2, 1):
                    served.handler.answers[at].fill([b"abc"[at : at + 1]])
                await served.settle()
                assert client.heard_nothing
                served.handler.answers[0].fill([b"a"])
                assert await client.receive(3) == b"abc"

        run(test)

    def test_who_waits_is_told_when_the_client_goes(self, run: Run) -> None:
        class Waits:
            gone = False

            def finish(self) -> None:
                raise AssertionError("there is nobody to answer")

            def abandon(self) -> None:
                self.gone = True

        async def test() -> None:
            async with serving() as served:
                client = await served.client()
                client.send(b"a", b"b")
                await served.handled(2)
                waits = Waits()
                served.handler.answers[1].waiting = waits
                client.go_away()
                await served.until(lambda: waits.gone)

        run(test)

    def test_a_client_that_rests_is_answered_and_not_heard(self, run: Run) -> None:
        async def test() -> None:
            async with serving() as served:
                client = await served.client()
                client.send(b"a")
                await served.handled(1)
                served.handler.answers[0].rest(0.3)
                served.handler.answers[0].fill([b"A"])
                client.send(b"b", b"c")
                assert await client.receive(1) == b"A"
                await asyncio.sleep(0.1)
                assert len(served.handler.frames) == 1
                await served.handled(3)

        run(test)

    def test_frames_that_came_together_rest_too(self, run: Run) -> None:
        async def test() -> None:
            handler = Handler()
            resting: list[float] = []

            def reply(frame: bytes) -> bytes:
                if frame == b"a":
                    handler.answers[-1].rest(0.3)
                    handler.answers[-1].rest(0.1)  # the longer one counts
                resting.append(asyncio.get_running_loop().time())
                return b"x"

            handler.reply = reply
            async with serving(handler) as served:
                client = await served.client()
                client.send(b"a", b"b", b"c")
                await served.handled(3)
                assert await client.receive(3) == b"xxx"
                assert resting[1] - resting[0] > 0.28

        run(test)

    def test_a_client_may_go_while_it_rests(self, run: Run) -> None:
        async def test() -> None:
            async with serving() as served:
                client = await served.client()
                client.send(b"a")
                await served.handled(1)
                answer = served.handler.answers[0]
                answer.rest(0.1)
                client.go_away()
                for connection in list(served.connections.open):
                    connection.abort()
                await served.until(lambda: not served.connections.open)
                answer.rest(0.1)
                answer.fill([b"A"])
                await asyncio.sleep(0.3)

        run(test)

    def test_a_request_without_an_answer_leaves_no_gap(self, run: Run) -> None:
        async def test() -> None:
            async with serving() as served:
                client = await served.client()
                client.send(b"a", b"b", b"c")
                await served.handled(3)
                served.handler.answers[2].fill([b"c"])
                served.handler.answers[1].drop()
                served.handler.answers[0].drop()
                assert await client.receive(1) == b"c"

        run(test)

    def test_answers_of_several_parts_stay_together(self, run: Run) -> None:
        async def test() -> None:
            async with serving() as served:
                client = await served.client()
                client.send(b"a", b"b")
                await served.handled(2)
                served.handler.answers[1].fill([b"4", b"", bytearray(b"5"), memoryview(b"6")])
                served.handler.answers[0].fill([b"1", b"2", b"3"])
                assert await client.receive(6) == b"123456"

        run(test)

    def test_thousands_of_pipelined_requests(self, run: Run) -> None:
        async def test() -> None:
            async with serving(Handler(echo)) as served:
                client = await served.client()
                bodies = [b"%d" % number for number in range(5000)]
                client.send(*bodies)
                expected = b"".join(map(framed, bodies))
                assert await client.receive(len(expected)) == expected

        run(test)

    def test_an_answer_for_a_client_that_went_is_dropped(self, run: Run) -> None:
        async def test() -> None:
            async with serving() as served:
                client = await served.client()
                client.send(b"a")
                await served.handled(1)
                client.go_away()
                await served.until(lambda: not served.connections.open)
                served.handler.answers[0].fill([b"too late"])
                await served.settle()

        run(test)


class TestBackpressure:
    def test_so_many_requests_are_in_flight_and_no_more(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("penstock.server.connection.REQUESTS_IN_FLIGHT_MAX", 3)

        async def test() -> None:
            async with serving() as served:
                client = await served.client()
                client.send(*(b"%d" % number for number in range(8)))
                await served.handled(3)
                await served.settle()
                assert len(served.handler.frames) == 3
                served.handler.answers[1].fill([b"1"])
                await served.settle()
                assert len(served.handler.frames) == 3, "the first is still owed"
                served.handler.answers[0].fill([b"0"])
                await served.handled(5)
                await served.settle()
                assert len(served.handler.frames) == 5
                for answered in range(2, 8):
                    await served.handled(answered + 1)
                    served.handler.answers[answered].fill([b"%d" % answered])
                assert await client.receive(8) == b"01234567"

        run(test)

    def test_a_client_that_does_not_read_is_not_read_from(self, run: Run) -> None:
        size = 100 * KIB

        async def test() -> None:
            async with serving(Handler(lambda frame: frame * size)) as served:
                client = await served.client()
                client.stop_listening()
                letters = bytes(range(97, 123)) * 20
                client.send(*(letters[at : at + 1] for at in range(len(letters))))
                # What the system's own buffers take, some megabytes, and then ours.
                assert await served.standstill() < 200
                client.listen_again()
                for letter in letters:
                    assert await client.receive(size) == bytes([letter]) * size

        run(test)

    def test_answers_that_wait_for_their_turn_count_as_unread(self, run: Run) -> None:
        """Or a client could have gigabytes made behind one request that takes its time."""
        size = 100 * KIB

        async def test() -> None:
            async with serving(Handler(lambda f: None if f == b"0" else f * size)) as served:
                client = await served.client()
                client.send(b"0", *(b"1" for _ in range(500)))
                await served.handled(2)
                assert await served.standstill() < 15
                served.handler.answers[0].fill([b"0"])
                assert await client.receive(1) == b"0"
                for _ in range(500):
                    assert await client.receive(size) == b"1" * size

        run(test)

    def test_the_answers_of_one_turn_count_as_unread(self, run: Run) -> None:
        """All requests have come in one piece; the answers are not made before some are taken."""

        async def test() -> None:
            async with serving(Handler(lambda _: bytes(2 * MIB))) as served:
                client = await served.client()
                client.stop_listening()
                client.send(*(b"x" for _ in range(500)))
                assert await served.standstill() < 10

        run(test)


class TestLargeFrames:
    def test_they_share_a_budget(self, run: Run) -> None:
        async def test() -> None:
            async with serving(Handler(lambda frame: b"%d" % (len(frame) // MIB))) as served:
                served.connections.memory = FrameMemory(8 * MIB)
                first, second, third = [await trusted(served) for _ in range(3)]
                announce(first, 5)
                await served.until(lambda: free(served.connections) < 4 * MIB)
                announce(second, 6)
                await served.settle()
                announce(third, 2.5)
                await served.settle()
                assert free(served.connections) == 3 * MIB - 4, "those who wait get nothing yet"
                second.write(bytes(6 * MIB))
                third.write(bytes(int(2.5 * MIB)))
                await served.settle()
                assert len(served.handler.frames) == 3
                first.write(bytes(5 * MIB))
                assert await first.receive(1) == b"5"
                assert await second.receive(1) == b"6"
                assert await third.receive(1) == b"2"
                assert free(served.connections) == 8 * MIB

        run(test)

    def test_who_goes_away_gives_back_what_he_had_or_waited_for(self, run: Run) -> None:
        async def test() -> None:
            async with serving(Handler(lambda _: b"!")) as served:
                served.connections.memory = FrameMemory(8 * MIB)
                holder, waiter, last = [await trusted(served) for _ in range(3)]
                announce(holder, 5)
                await served.until(lambda: free(served.connections) < 4 * MIB)
                announce(waiter, 6)
                await served.settle()
                announce(last, 4)
                await served.settle()
                waiter.go_away()  # noticed only when it is its turn: it is not read from
                holder.go_away()
                last.write(bytes(4 * MIB))
                assert await last.receive(1) == b"!"
                assert free(served.connections) == 8 * MIB

        run(test)

    def test_each_of_several_in_a_row_is_counted(self, run: Run) -> None:
        """The share of the first must not do for the next, which may be thirty times as large."""

        async def test() -> None:
            async with serving(Handler(lambda _: b"!")) as served:
                client = await trusted(served)
                whole = free(served.connections)
                next_one = struct.pack(">i", 90 * MIB) + bytes(1000)
                client.write(framed(bytes(3 * MIB)) + next_one)
                assert await client.receive(1) == b"!"
                await served.until(lambda: free(served.connections) == whole - 90 * MIB - 4)

        run(test)

    def test_a_length_that_was_not_looked_at_reserves_nothing(self, run: Run) -> None:
        """A client that is not read from can write what it wants behind its requests."""

        async def test() -> None:
            async with serving() as served:
                client = await trusted(served)
                whole = free(served.connections)
                for _ in range(1001):
                    client.send(b"x")
                client.write(struct.pack(">i", 2**31 - 1))
                await served.handled(1001)
                await served.settle()
                assert free(served.connections) == whole
                for answer in served.handler.answers:
                    answer.fill([b"!"])
                await served.until(lambda: not served.connections.open)

        run(test)


class TestIdleBuffers:
    def test_they_are_given_back_a_few_at_a_time(self, run: Run) -> None:
        async def test() -> None:
            async with serving(Handler(lambda _: b"!")) as served:
                clients = [await trusted(served) for _ in range(RECEIVE_BUFFERS_SHRUNK_MAX + 3)]
                for client in clients:
                    client.send(bytes(MIB))
                    assert await client.receive(1) == b"!"
                served.connections.shrink_buffers()
                left = [one.shrink_buffer() for one in served.connections.open]
                assert sum(left) == 3, "the others had nothing to give back any more"

        run(test)

    def test_all_are_given_back_in_the_end(self, run: Run) -> None:
        async def test() -> None:
            async with serving(Handler(lambda _: b"!")) as served:
                clients = [await trusted(served) for _ in range(2 * RECEIVE_BUFFERS_SHRUNK_MAX)]
                for client in clients:
                    client.send(bytes(MIB))
                    assert await client.receive(1) == b"!"
                served.connections.shrink_buffers()
                clients[0].go_away()
                await served.settle()
                assert not any(one.shrink_buffer() for one in served.connections.open)

        run(test)


async def trusted(served: Served) -> Client:
    """A client that has made itself known."""
    client = await served.client()
    client.send(b"hello")
    known = len(served.handler.frames)
    await served.handled(known + 1)
    if served.handler.reply(b"hello") is None:
        served.handler.answers[-1].drop()
    else:
        await client.receive(len(served.handler.reply(b"hello") or b""))
    return client


def announce(client: Client, mebibytes: float) -> None:
    client.write(struct.pack(">i", int(mebibytes * MIB)))


def free(connections: Connections) -> int:
    return connections.memory._free


class TestTheEnd:
    @pytest.mark.parametrize("stream", [struct.pack(">i", -1), b"GET / HTTP/1.1\r\n\r\n"])
    def test_what_is_no_frame_ends_it(
        self, run: Run, stream: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "penstock")

        async def test() -> None:
            async with serving(Handler(echo)) as served:
                bad, good = await served.client(), await served.client()
                bad.write(stream)
                assert await bad.is_closed()
                good.send(b"still here")
                assert await good.receive(14) == framed(b"still here")

        run(test)
        assert "closed: receive frame" in caplog.text

    @pytest.mark.parametrize(
        ("error", "level"), [(PenstockError("read", "bad"), "INFO"), (KeyError("oops"), "ERROR")]
    )
    def test_a_request_that_fails_ends_it(
        self, run: Run, error: Exception, level: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "penstock")

        async def test() -> None:
            async with serving(Failing(echo, error=error)) as served:
                bad, good = await served.client(), await served.client()
                bad.send(b"fail", b"never handled")
                assert await bad.is_closed()
                assert served.handler.frames == [b"fail"]
                good.send(b"still here")
                assert await good.receive(14) == framed(b"still here")

        run(test)
        (record,) = (r for r in caplog.records if "closed" in r.message)
        assert record.levelname == level

    def test_one_more_than_the_limit_is_refused(
        self, run: Run, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def test() -> None:
            async with serving(Handler(echo), limit=2) as served:
                first, second = await served.client(), await served.client()
                await served.until(lambda: len(served.connections.open) == 2)
                third = await served.client()
                assert await third.is_closed()
                for client in (first, second):
                    client.send(b"x")
                    assert await client.receive(5) == framed(b"x")
                first.go_away()
                await served.until(lambda: len(served.connections.open) == 1)
                fourth = await served.client()
                fourth.send(b"x")
                assert await fourth.receive(5) == framed(b"x")

        run(test)
        assert "too many connections" in caplog.text

    def test_a_server_that_stops_answers_and_reads_no_more(self, run: Run) -> None:
        async def test() -> None:
            async with serving() as served:
                client = await served.client()
                client.send(b"before")
                await served.handled(1)
                (connection,) = served.connections.open
                served.connections.stopping = True
                connection.stop_reading()
                client.send(b"after")
                await served.settle()
                assert not connection.idle
                served.handler.answers[0].fill([b"answer"])
                assert await client.receive(6) == b"answer"
                await served.settle()
                assert connection.idle
                assert served.handler.frames == [b"before"]
                connection.close()
                assert await client.is_closed()

        run(test)


class Failing(Handler):
    """Raises for one frame."""

    def __init__(self, reply: Reply, error: Exception) -> None:
        super().__init__(reply)
        self._error = error

    def handle(self, frame: memoryview, peer: Peer, answer: Answer) -> None:
        if bytes(frame) == b"fail":
            self.frames.append(b"fail")
            raise self._error
        super().handle(frame, peer, answer)


class TestStalling:
    def test_in_the_middle_of_a_frame_ends_it(
        self, run: Run, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "penstock")

        async def test() -> None:
            for cut in (1, 4, 7):
                async with serving(Handler(echo)) as served:
                    client = await served.client()
                    client.write(framed(b"whole") + framed(b"cut off")[:cut])
                    await client.receive(9)
                    await pass_time(served, FRAME_SECONDS_MAX - 1)
                    assert served.connections.open
                    await pass_time(served, 2)
                    assert await client.is_closed()

        run(test)
        assert "stalled in the middle of a frame" in caplog.text

    def test_a_frame_in_single_bytes_ends_it(self, run: Run) -> None:
        """One byte every ten seconds is not progress, and a few whole frames are."""

        async def test() -> None:
            async with serving(Handler(echo)) as served:
                slow, steady = await served.client(), await served.client()
                for byte in framed(b"a long request")[:6]:
                    slow.write(bytes([byte]))
                    steady.send(b"x")
                    assert await steady.receive(5) == framed(b"x")
                    await pass_time(served, 10)
                assert await slow.is_closed()
                assert len(served.connections.open) == 1

        run(test)

    def test_a_large_frame_over_a_slow_line_is_progress(self, run: Run) -> None:
        async def test() -> None:
            async with serving(Handler(lambda frame: b"!")) as served:
                client = await trusted(served)
                announce(client, 3)
                for _ in range(12):
                    client.write(bytes(256 * KIB))
                    await pass_time(served, 20)
                assert await client.receive(1) == b"!"

        run(test)

    def test_a_frame_that_begins_after_an_hour_of_silence_has_its_time(self, run: Run) -> None:
        async def test() -> None:
            async with serving(Handler(echo)) as served:
                client = await served.client()
                await pass_time(served, IDLE_SECONDS_MAX - 1)
                client.write(framed(b"late")[:5])
                await pass_time(served, FRAME_SECONDS_MAX - 1)
                client.write(framed(b"late")[5:])
                assert await client.receive(8) == framed(b"late")

        run(test)

    def test_one_that_waited_for_us_has_its_time(self, run: Run) -> None:
        """Reading stopped for a minute because of other answers; that is not the client's fault."""

        async def test() -> None:
            async with serving() as served:
                client = await served.client()
                client.send(*(b"x" for _ in range(1000)))
                client.write(framed(b"y")[:3])
                await served.handled(1000)
                await pass_time(served, 2 * FRAME_SECONDS_MAX)
                for answer in list(served.handler.answers):
                    answer.fill([b"!"])
                await client.receive(1000)
                served.connections.close_stalled()
                client.write(framed(b"y")[3:])
                await served.handled(1001)

        run(test)

    def test_an_idle_one_is_closed_after_a_while(self, run: Run) -> None:
        async def test() -> None:
            async with serving(Handler(echo)) as served:
                client = await served.client()
                client.send(b"x")
                await client.receive(5)
                await pass_time(served, IDLE_SECONDS_MAX - 1)
                assert served.connections.open
                await pass_time(served, 2)
                assert await client.is_closed()

        run(test)

    def test_one_that_waits_for_an_answer_is_not_idle(self, run: Run) -> None:
        async def test() -> None:
            async with serving() as served:
                client = await served.client()
                client.send(b"x")
                await served.handled(1)
                await pass_time(served, 2 * IDLE_SECONDS_MAX)
                served.handler.answers[0].fill([b"!"])
                assert await client.receive(1) == b"!"

        run(test)


async def pass_time(served: Served, seconds: float) -> None:
    """Let what was sent arrive, then let time pass, with a look before and after it."""
    await served.settle()
    served.connections.close_stalled()
    served.clock.advance(seconds)
    served.connections.close_stalled()
    await served.settle()
