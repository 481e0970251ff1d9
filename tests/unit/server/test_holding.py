"""A request that takes long: what its client sends next waits, its frame stays, and others go on."""

from __future__ import annotations

import logging

import pytest
from tests.unit.server.served import Handler, Run, framed, serving

from penstock.errors import PenstockError
from penstock.kafka.call import Answer, Peer
from penstock.limits import KIB


def test_nothing_is_handled_behind_a_request_that_takes_long(run: Run) -> None:
    async def test() -> None:
        async with serving() as served:

            def reply(frame: bytes) -> bytes | None:
                if frame == b"long":
                    served.handler.answers[-1].hold()
                    return None
                return framed(frame)

            served.handler.reply = reply
            client, other = await served.client(), await served.client()
            client.send(b"long", b"next")
            await served.handled(1)
            other.send(b"other")
            assert await other.receive(9) == framed(b"other")
            client.send(b"last")
            await served.settle()
            assert served.handler.frames == [b"long", b"other"]
            served.handler.answers[0].release()
            await served.handled(4)
            assert served.handler.frames[2:] == [b"next", b"last"]
            assert client.heard_nothing
            served.handler.answers[0].fill([b"answer"])
            assert await client.receive(22) == b"answer" + framed(b"next") + framed(b"last")

    run(test)


def test_its_frame_stays_as_it_is(run: Run) -> None:
    class Keeping(Handler):
        frame: memoryview

        def handle(self, frame: memoryview, peer: Peer, answer: Answer) -> None:
            super().handle(frame, peer, answer)
            if len(self.answers) == 1:
                self.frame = frame
                answer.hold()

    async def test() -> None:
        handler = Keeping()
        async with serving(handler) as served:
            client = await served.client()
            client.send(b"x" * 100)
            await served.handled(1)
            client.send(b"y" * 100 * KIB, b"y" * 100)
            await served.settle()
            served.connections.shrink_buffers()
            assert bytes(handler.frame) == b"x" * 100
            handler.answers[0].release()
            await served.handled(3)

    run(test)


def test_a_client_may_go_while_one_takes_long(run: Run) -> None:
    async def test() -> None:
        async with serving() as served:
            client = await served.client()
            client.send(b"long", b"next")
            await served.handled(2)
            served.handler.answers[0].hold()
            client.go_away()
            await served.until(lambda: not served.connections.open)
            served.handler.answers[0].release()
            served.handler.answers[0].fill([b"late"])
            await served.settle()
            assert len(served.handler.frames) == 2

    run(test)


def test_one_that_fails_later_ends_the_connection(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with serving() as served:
            for error in (PenstockError("read", "it is no request"), ZeroDivisionError()):
                client = await served.client()
                client.send(b"long")
                await served.handled(len(served.clients))
                served.handler.answers[-1].fail(error)
                assert await client.is_closed()

    caplog.set_level(logging.INFO, "penstock")
    run(test)
    assert "it is no request" in caplog.text
    assert caplog.text.count("unexpectedly") == 1


def test_nothing_is_handled_behind_one_that_ended_the_connection(run: Run) -> None:
    async def test() -> None:
        async with serving() as served:
            client = await served.client()
            served.handler.reply = lambda frame: served.handler.answers[-1].hold()
            client.send(b"wrong", b"next")
            await served.handled(1)
            served.handler.answers[0].fail(PenstockError("read", "it is no request"))
            served.handler.answers[0].release()
            assert await client.is_closed()
            assert served.handler.frames == [b"wrong"]

    run(test)


def test_who_has_gone_is_told_by_who_asks(run: Run) -> None:
    async def test() -> None:
        async with serving() as served:
            client = await served.client()
            served.handler.reply = lambda frame: served.handler.answers[-1].hold()
            client.send(b"long")
            await served.handled(1)
            answer = served.handler.answers[0]
            assert answer.is_wanted()
            client.go_away()
            await served.settle()
            assert served.connections.open, "a connection that is not read does not tell"
            assert not answer.is_wanted()
            await served.until(lambda: not served.connections.open)
            assert not answer.is_wanted()

    run(test)
