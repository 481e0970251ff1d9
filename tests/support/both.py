"""A writer to be killed: `python -m tests.support.both DATABASE BOOTSTRAP NUMBER [STEP]`.

It writes a number to the database and to two partitions of the log, as one. With a step it kills itself
there: while it starts, or in the middle of its transaction.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from tests.support.applying import connect

from penstock.twophase import TwoPhaseProducer, Writer, batches

NAME, TOPIC, PARTITIONS = "both", "orders", 2

STARTING = {
    "the name is taken over": (TwoPhaseProducer, "recover", "before"),
    "what was left is ended": (TwoPhaseProducer, "recover", "after"),
}
WRITING = {
    "the row is written": (Writer, "send", "before"),
    "some is sent": (batches.Batches, "flush", "after"),
    "all is sent": (TwoPhaseProducer, "prepare", "after"),
    "the token is written": (Writer, "_store", "after"),
    "the database has committed": (TwoPhaseProducer, "commit", "before"),
    "the log has committed": (TwoPhaseProducer, "commit", "after"),
}
DECIDED = ("the database has committed", "the log has committed")


def create(connection: Any) -> None:
    connection.execute("CREATE TABLE numbers (number INTEGER)")
    connection.commit()


def die(kind: Any, method: str, when: str) -> None:
    """Kill this process when a method is called, or has done its work."""
    original: Callable[..., Any] = getattr(kind, method)

    def deadly(*args: Any, **options: Any) -> Any:
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        original(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(kind, method, deadly)


def write(writer: Writer, connection: Any, mark: str, number: int) -> None:
    with writer.transaction():
        connection.execute(f"INSERT INTO numbers VALUES ({mark})", (number,))
        for partition in range(PARTITIONS):
            writer.send(TOPIC, b"%d" % number, partition=partition)


def main() -> None:
    database, bootstrap, number, *steps = sys.argv[1:]
    connection = connect(database)
    mark = "%s" if "host=" in database else "?"
    batches._BYTES_MAX = 1  # type: ignore[misc]  # so that every record is sent by itself
    for step in steps:
        if step in STARTING:
            die(*STARTING[step])
    with Writer(connection, name=NAME, bootstrap=bootstrap) as writer:
        for step in steps:
            die(*WRITING[step])
        write(writer, connection, mark, int(number))


if __name__ == "__main__":
    main()
