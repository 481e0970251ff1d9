"""Both event loops: the one the server prefers, and the one it falls back to."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.server.served import Run, Test

from penstock.server.app import new_event_loop


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a test that is a coroutine."""
    factory = new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run(test: Test) -> None:
        async def body() -> None:
            await test()

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(body())

    return run
