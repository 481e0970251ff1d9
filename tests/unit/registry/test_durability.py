"""The registry over a disk that crashes: what was answered stays, what was not is not shown."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import random
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest
from tests.support.log import Log
from tests.support.registry import CONTENT_TYPE

from penstock.http.messages import Request, Response
from penstock.http.registry import RegistryRoutes
from penstock.http.routes import find
from penstock.registry.registry import Registry
from penstock.registry.topic import SchemaTopic
from penstock.testing.faulty import Crash, FaultyFiles
from penstock.testing.power_failure import POWER_FAILURES, Keep


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Served:
    """A registry whose commit rounds run when the test says so."""

    def __init__(self, log: Log) -> None:
        self._log = log

        async def durable() -> None:
            done = asyncio.get_running_loop().create_future()
            log.broker.commit.after(lambda: done.set_result(None))
            await done

        self._routes = RegistryRoutes(
            Registry(SchemaTopic(log.broker, log.clock)), durable
        ).routes()

    def call(self, method: str, path: str, body: object = None) -> Awaitable[Response]:
        path, _, query = path.partition("?")
        parts = tuple(path.strip("/").split("/"))
        asked = dict([query.split("=")]) if query else {}
        data = json.dumps(body).encode()
        request = Request(method, parts, asked, {"content-type": CONTENT_TYPE}, data)
        handler, opened = find(self._routes, request)
        return asyncio.ensure_future(handler(request, *opened))

    def register(self, subject: str, name: str) -> Awaitable[Response]:
        schema = {"schema": json.dumps({"type": "fixed", "name": name, "size": 4})}
        return self.call("POST", f"/subjects/{subject}/versions", schema)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def finished(log: Log, answer: Awaitable[Response]) -> Any:
    """The body of an answer, with all the rounds it needs."""
    task = asyncio.ensure_future(answer)
    while not task.done():
        await settle()
        log.commit()
    return json.loads((await task).body)


def test_an_answer_waits_for_its_round_and_is_not_shown_before() -> None:
    async def story() -> None:
        log = Log()
        served = Served(log)
        registering = asyncio.ensure_future(served.register("s", "F"))
        await settle()
        end_of_round = log.start_round()
        await settle()
        assert not registering.done()
        assert await finished(log, served.call("GET", "/subjects")) == []
        end_of_round()
        log.commit()
        await settle()
        assert json.loads((await registering).body) == {"id": 1}
        assert await finished(log, served.call("GET", "/subjects")) == ["s"]

    asyncio.run(story())


def test_changes_are_planned_one_after_the_other() -> None:
    async def story() -> None:
        log = Log()
        served = Served(log)
        names = ("F", "G", "F")
        answers = [
            asyncio.ensure_future(served.register(f"s{n}", name)) for n, name in enumerate(names)
        ]
        bodies = [await finished(log, answer) for answer in answers]
        assert bodies == [{"id": 1}, {"id": 2}, {"id": 1}]

    asyncio.run(story())


def test_a_failed_sync_is_no_answer_and_no_schema() -> None:
    async def story() -> None:
        files = FaultyFiles(random.Random(1))
        log = Log(files)
        served = Served(log)
        await finished(log, served.register("s", "F"))
        files.fail("sync", errno.EIO)
        refused = await finished(log, served.register("t", "G"))
        assert refused["error_code"] == 50001
        assert await finished(log, served.call("GET", "/subjects")) == ["s"]
        refused = await finished(log, served.register("u", "H"))
        assert refused["error_code"] == 50001, "until a restart has looked at the disk"
        log.open()
        served = Served(log)
        assert "s" in await finished(log, served.call("GET", "/subjects"))

    asyncio.run(story())


# -- crashes


async def history(log: Log, told: dict[str, int]) -> None:
    served = Served(log)
    for subject, name in (("s", "F"), ("t", "G"), ("u", "F")):
        told[name] = (await finished(log, served.register(subject, name)))["id"]
    await finished(log, served.call("DELETE", "/subjects/t"))
    # From here on nobody can be told of G, and its id must not come back.
    await finished(log, served.call("DELETE", "/subjects/t?permanent=true"))
    told["H"] = (await finished(log, served.register("v", "H")))["id"]


async def check(log: Log, told: dict[str, int]) -> None:
    served = Served(log)
    for name, schema_id in told.items():
        answer = await finished(log, served.call("GET", f"/schemas/ids/{schema_id}"))
        if name == "G" and answer.get("error_code") == 40403:
            continue  # its removal was asked for
        assert "schema" in answer, f"{name} was answered, and is lost"
        assert json.loads(answer["schema"])["name"] == name
    fresh = (await finished(log, served.register("w", "New")))["id"]
    assert fresh not in told.values(), "an id was given twice"


def crashed(at: int, policy: Keep, *, sync_is_noop: bool = False) -> bool:
    """Run the history into a power failure at one operation, and check; whether it got that far."""
    files = FaultyFiles(random.Random(at), crash_at=at, sync_is_noop=sync_is_noop)
    told: dict[str, int] = {}
    try:
        log = Log(files)
        asyncio.run(history(log, told))
        ended = True
    except Crash:
        ended = False
    if ended and not sync_is_noop:
        return False
    asyncio.run(check(Log(files.after_crash(policy, random.Random(at))), told))
    return True


@pytest.mark.parametrize("policy", POWER_FAILURES, ids=str)
def test_a_power_failure_at_any_operation(policy: Keep) -> None:
    operations = 1
    while crashed(operations, policy):
        operations += 1
    assert operations > 30


def test_the_test_notices_a_disk_that_does_not_sync() -> None:
    with pytest.raises(AssertionError):
        crashed(10_000, Keep.NOTHING, sync_is_noop=True)
