"""Views over HTTP, from a real server, while a query keeps writing to them."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.view_writer import BEGINS, SHAPE, commit, rows

from penstock.testing import broker
from penstock.views.store import ViewStore, open_store
from penstock.views.version import Version

NOTHING, USAGE = 404, 400


class Views:
    """A store, a version that a query writes to, and a server that answers."""

    def __init__(self, where: str, http_url: str) -> None:
        self.store: ViewStore = open_store(where)
        self.address = http_url.removeprefix("http://")
        self.version: Version = self.store.begin("totals", SHAPE, BEGINS)

    def write(self, batch: int, changed: list[tuple[str, int]]) -> None:
        self.store.write(self.version, commit(batch), changed, [])

    def get(self, path: str, method: str = "GET") -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self.address, timeout=20)
        with contextlib.closing(connection):
            connection.request(method, path)
            answer = connection.getresponse()
            body = answer.read()
            return answer.status, json.loads(body) if body else None

    @contextlib.contextmanager
    def changes(self, path: str, known: str = "") -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(self.address, timeout=20)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Last-Event-ID": known} if known else {})
            answer = connection.getresponse()
            assert answer.status == 200
            assert answer.getheader("content-type") == "text/event-stream"
            with answer:
                yield answer


@pytest.fixture
def views(tmp_path: Path) -> Iterator[Views]:
    where = f"sqlite:///{tmp_path}/views.db"
    with broker(http=True, views=where) as running:
        assert running.http is not None
        yield Views(where, running.http)


def event(answer: http.client.HTTPResponse) -> tuple[str, Any]:
    """The next event: its id and what it says."""
    fields: dict[str, str] = {}
    while True:
        line = answer.readline().decode()
        assert line, "the stream ended"
        if line == "\n" and "data" in fields:
            return fields["id"], json.loads(fields["data"])
        name, _, value = line.strip().partition(": ")
        fields[name] = value


def test_answers_say_what_they_reflect(views: Views) -> None:
    views.write(0, rows(0))
    views.write(1, [("u1", 99)])
    status, answer = views.get("/views/totals?user=eq.u1")
    assert status == 200
    assert answer == {
        "view": "totals",
        "version": 1,
        "position": {"orders": {"0": 20}},
        "watermark": "1970-01-01T00:00:01.000000Z",
        "updated": "1970-01-01T00:00:00.005000Z",
        "rows": [{"user": "u1", "total": 99}],
        "more": False,
    }
    asked = "/views/totals?total=gte.10&total=lt.99&order=user.desc&limit=2"
    _, answer = views.get(asked)
    assert [row["user"] for row in answer["rows"]] == ["u4", "u3"]
    assert answer["more"]


def test_what_there_is(views: Views) -> None:
    assert views.get("/views")[1] == [{"view": "totals", "version": None, "building": 1}]
    views.write(0, rows(0))
    views.store.plan_rebuild("totals")
    (found,) = views.get("/views")[1]
    assert (found["version"], found["building"]) == (1, 2)
    assert found["columns"] == {"user": "text", "total": "integer"}
    assert found["key"] == ["user"]
    assert found["position"] == {"orders": {"0": 10}}


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/views/other", NOTHING, "there is none in"),
        ("/views/No%20Name%00", NOTHING, "no view can have that name"),
        ("/views/totals?x=eq.1", USAGE, "there is no column x"),
        ("/views/totals?total=eq.x", USAGE, "of kind integer"),
        ("/views/totals/changes?x=eq.1", USAGE, "there is no column x"),
        ("/views/other/changes", NOTHING, "there is none in"),
    ],
)
def test_what_is_refused(views: Views, path: str, status: int, words: str) -> None:
    views.write(0, rows(0))
    found, answer = views.get(path)
    assert (found, answer["error_code"]) == (status, status)
    assert words in answer["message"]


def test_nobody_writes_over_http(views: Views) -> None:
    views.write(0, rows(0))
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert views.get("/views/totals", method)[0] == 405
    assert views.get("/views/totals/changes", "HEAD")[0] == 200


def test_a_store_that_does_not_answer(tmp_path: Path) -> None:
    with broker(http=True, views="postgresql://me:secret@127.0.0.1:1/x") as running:
        assert running.http is not None
        connection = http.client.HTTPConnection(running.http.removeprefix("http://"), timeout=20)
        with contextlib.closing(connection):
            connection.request("GET", "/views")
            answer = connection.getresponse()
            text = answer.read().decode()
        assert answer.status == 503
        assert "refused" in text
        assert "secret" not in text


def test_a_reader_is_told_when_its_answer_changed(views: Views) -> None:
    views.write(0, rows(0))
    with views.changes("/views/totals/changes?user=eq.u1") as mine:
        _, first = event(mine)
        assert first["rows"] == [{"user": "u1", "total": 10}]
        views.write(1, [("u2", 5)])  # somebody else's
        time.sleep(0.6)
        views.write(2, [("u1", 7)])
        _, second = event(mine)
        assert second["rows"] == [{"user": "u1", "total": 7}]
        assert second["position"] == {"orders": {"0": 30}}


def test_a_reader_that_comes_back(views: Views) -> None:
    """It is told at once what it missed, and nothing if it missed nothing."""
    views.write(0, rows(0))
    path = "/views/totals/changes?user=eq.u1"
    with views.changes(path) as mine:
        known, _ = event(mine)
    views.write(1, [("u2", 5)])
    with views.changes(path, known) as mine:
        views.write(2, [("u1", 6)])
        assert event(mine)[1]["rows"][0]["total"] == 6
    with views.changes(path, known) as mine:
        assert event(mine)[1]["rows"][0]["total"] == 6


def test_a_reader_sees_the_new_version(views: Views) -> None:
    views.write(0, rows(0))
    with views.changes("/views/totals/changes") as mine:
        event(mine)
        views.store.plan_rebuild("totals")
        new = views.store.begin("totals", SHAPE, BEGINS)
        views.store.write(new, commit(0, "q2"), [("only", 1)], [])
        _, answer = event(mine)
    assert (answer["version"], answer["rows"]) == (2, [{"user": "only", "total": 1}])


def test_a_view_that_is_dropped_ends_the_stream(views: Views) -> None:
    views.write(0, rows(0))
    with views.changes("/views/totals/changes") as mine:
        event(mine)
        views.store.drop("totals")
        assert mine.read() == b""


def test_readers_have_a_limit_and_leave(views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.http.views.VIEW_SUBSCRIPTIONS_MAX", 1)
    monkeypatch.setattr("penstock.http.views.VIEW_SIGN_SECONDS", 0.1)
    views.write(0, rows(0))
    path = "/views/totals/changes"
    with views.changes(path) as mine:
        event(mine)
        assert views.get(path)[0] == 503
        assert mine.readline() == b": still here\n"
    until = time.monotonic() + 20
    while views.get(path, "HEAD")[0] != 200:  # its place is free once it is seen to have gone
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_server_that_stops_ends_the_streams(tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path}/views.db"
    with broker(http=True, views=where) as running, contextlib.ExitStack() as opened:
        assert running.http is not None
        views = Views(where, running.http)
        views.write(0, rows(0))
        mine = opened.enter_context(views.changes("/views/totals/changes"))
        event(mine)
        began = time.monotonic()
        opened.pop_all()
    assert time.monotonic() - began < 5
    with contextlib.suppress(http.client.IncompleteRead, ConnectionResetError):
        assert mine.read() == b""


def test_views_need_http(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock", "serve", "--data", str(tmp_path), "--http", "off"]
    done = subprocess.run(
        [*command, "--views", "sqlite:///x.db"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "cannot serve views: they are asked over HTTP" in done.stderr
