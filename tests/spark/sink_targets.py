"""What the sinks write to, and how to read it back: one class for each, with one interface."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from penstock.client.topics import create_topic
from penstock.spark import (
    DeltaSink,
    ParquetSink,
    PostgresSink,
    Sink,
    SqliteSink,
    TopicSink,
    WebhookSink,
    read_manifest,
)
from penstock.spark.sinks import commit_markers

Row = dict[str, Any]
LOST, TAKEN = -1, 0


class Target(Protocol):
    """One place to write to."""

    keyed: bool
    """Whether it has upsert and changelog."""
    once: bool
    """Whether a batch that comes again is not written again."""
    fixed: bool
    """Whether it has columns that must stay."""

    def sink(self, **options: Any) -> Sink: ...

    def rows(self) -> list[Row]: ...


def readable(rows: Sequence[Row]) -> list[Row]:
    """Rows in one form and order: nested values as they are in JSON, nulls left out."""
    found = [{k: _value(v) for k, v in row.items() if v is not None} for row in rows]
    return sorted(found, key=lambda row: (str(row.get("user")), str(row)))


def _value(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("[", "{"):
        return json.loads(value)
    return value


class SqliteTarget:
    keyed = once = fixed = True

    def __init__(self, folder: Path) -> None:
        self._path = folder / "shop.db"

    def sink(self, **options: Any) -> Sink:
        return SqliteSink(self._path, "target", **options)

    def rows(self) -> list[Row]:
        with closing(sqlite3.connect(self._path)) as database:
            database.row_factory = sqlite3.Row
            found = database.execute("SELECT * FROM target").fetchall()
        return readable([dict(row) for row in found])


class PostgresTarget:
    keyed = once = fixed = True

    def __init__(self, connection: str, table: str) -> None:
        self.connection = connection
        self.table = table

    def sink(self, **options: Any) -> Sink:
        return PostgresSink(self.connection, self.table, **options)

    def rows(self) -> list[Row]:
        return readable(self.query(f"SELECT * FROM {self.table}"))

    def query(self, statement: str) -> list[Row]:
        import psycopg
        from psycopg.rows import dict_row

        with psycopg.connect(self.connection, row_factory=dict_row) as database:
            answer = database.execute(statement)
            return list(answer.fetchall()) if answer.description else []


class DeltaTarget:
    keyed = once = fixed = True

    def __init__(self, folder: Path) -> None:
        self.path = folder / "delta"

    def sink(self, **options: Any) -> Sink:
        return DeltaSink(self.path, **options)

    def rows(self) -> list[Row]:
        return self.rows_at(None)

    def rows_at(self, version: int | None) -> list[Row]:
        from deltalake import DeltaTable

        return readable(
            pa.table(DeltaTable(self.path, version=version).to_pyarrow_table()).to_pylist()
        )


class ParquetTarget:
    keyed = False
    once = fixed = True

    def __init__(self, folder: Path) -> None:
        self.path = folder / "parquet"

    def sink(self, **options: Any) -> Sink:
        return ParquetSink(self.path, **options)

    def rows(self) -> list[Row]:
        return self.rows_at(None)

    def rows_at(self, version: int | None) -> list[Row]:
        import pyarrow.parquet as pq

        found = read_manifest(str(self.path), version)
        files = [Path(file.removeprefix("file://")) for file in found.files]
        rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
        assert len(rows) == found.rows
        return readable(rows)


class TopicTarget:
    keyed = fixed = False
    once = True

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        create_topic(bootstrap, topic, partitions=1)
        commit_markers.create(bootstrap)

    def sink(self, **options: Any) -> Sink:
        return TopicSink(self._bootstrap, self._topic, **options)

    def rows(self) -> list[Row]:
        config = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        found: list[Row] = []
        with closing(Consumer(config)) as consumer:
            consumer.assign([TopicPartition(self._topic, 0, 0)])
            while (message := consumer.poll(30)).error() is None:
                found.append(json.loads(message.value()))
        return readable(found)


class WebhookTarget:
    keyed = once = fixed = False

    def __init__(self, server: Receiver) -> None:
        self.server = server

    def sink(self, **options: Any) -> Sink:
        return WebhookSink(self.server.url, **{"rows_per_request": 2, **options})

    def rows(self) -> list[Row]:
        """What a server that remembers ids has taken."""
        pages = {headers["webhook-id"]: body for headers, body in self.server.taken}
        return readable([row for body in pages.values() for row in json.loads(body)["rows"]])


class Receiver(HTTPServer):
    """A web server that keeps what it is sent; answers with `statuses` first, then 200.

    LOST and TAKEN are none: it goes away before it has taken a request, or after that.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/hook"
        self.statuses: list[int] = []
        self.asked: list[tuple[dict[str, str], bytes]] = []
        self.taken: list[tuple[dict[str, str], bytes]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        request = ({name.lower(): value for name, value in self.headers.items()}, body)
        self.server.asked.append(request)
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        if status in (200, TAKEN):
            self.server.taken.append(request)
        if status in (LOST, TAKEN):
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
