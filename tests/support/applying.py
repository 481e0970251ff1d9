"""A consumer to be killed: `python -m tests.support.applying DATABASE BOOTSTRAP TOPIC INSTANCE SEED`.

It writes a row for each record, now and then slowly, so that a kill finds it in all places.
"""

from __future__ import annotations

import random
import sqlite3
import sys
import time
from typing import Any

from penstock.consume import consume_into

NAME = "applying"


def connect(database: str) -> Any:
    """A connection, by what the text looks like: a file of SQLite, or how to reach PostgreSQL."""
    if "host=" in database:
        import psycopg

        return psycopg.connect(database)
    return sqlite3.connect(database, timeout=60)


def create(connection: Any) -> None:
    """The table that records are applied to; nothing keeps it from holding one twice."""
    connection.execute("CREATE TABLE applied (partition_id INTEGER, value TEXT)")
    connection.commit()


def applied(connection: Any) -> list[tuple[int, str]]:
    """What was applied, partition by partition, in the order of the values."""
    rows = connection.execute("SELECT partition_id, value FROM applied").fetchall()
    connection.commit()
    return sorted((int(partition), str(value)) for partition, value in rows)


def write(connection: Any, message: Any) -> None:
    """One row for one record."""
    mark = "?" if isinstance(connection, sqlite3.Connection) else "%s"
    connection.execute(
        f"INSERT INTO applied VALUES ({mark}, {mark})",
        (message.partition(), message.value().decode()),
    )


def main() -> None:
    database, bootstrap, topic, instance, seed = sys.argv[1:]
    chance = random.Random(int(seed))

    def slowly(connection: Any, message: Any) -> None:
        write(connection, message)
        if chance.random() < 0.05:
            time.sleep(0.01)

    settings = {"bootstrap.servers": bootstrap, "group.instance.id": instance}
    consume_into(connect(database), [topic], slowly, name=NAME, settings=settings, batch=20)


if __name__ == "__main__":
    main()
