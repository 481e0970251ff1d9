"""A query that keeps a view is killed after every statement.

    python -m tests.support.view_writer STORE STEP

It does what a query does: it starts, writes the batch that comes next, and so on. A view is built and
rebuilt, and the second version takes the place of the first. For each statement of that, or every STEP
of them, there is a view of its own and a process that is killed after it; then somebody reads, and the
query starts again and goes on to its end. A process of its own, so that it has no threads and may fork.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from penstock.errors import NotFoundError
from penstock.views.database import Session
from penstock.views.kinds import Kind
from penstock.views.query import Query
from penstock.views.store import ViewStore, open_store
from penstock.views.version import Column, Commit, Position, Shape

SHAPE = Shape((Column("user", Kind.TEXT), Column("total", Kind.INTEGER)), ("user",))
BEGINS: Position = {"orders": {"0": 0}}
USERS = 5
BATCHES = 2
VERSIONS = 2
END = (VERSIONS, BATCHES - 1)


def commit(batch: int, query: str = "q") -> Commit:
    """Batch b ends at offset 10 (b + 1)."""
    return Commit(query, batch, {"orders": {"0": 10 * (batch + 1)}}, 1000 * batch, 5)


def rows(batch: int) -> list[tuple[str, int]]:
    """What is written with it."""
    return [(f"u{user}", 10 * (batch + 1)) for user in range(USERS)]


def keep(store: ViewStore, view: str) -> None:
    """Go on where the store is, until two versions were built."""
    version = store.begin(view, SHAPE, BEGINS)
    while True:
        done = -1 if version.last is None else version.last.batch
        for batch in range(max(0, done), BATCHES):  # Spark runs the last one again
            gone = [("u0",)] if batch else []
            store.write(
                version, commit(batch, f"q{version.number}"), rows(batch)[len(gone) :], gone
            )
        if version.number == VERSIONS:
            return
        store.plan_rebuild(view)
        version = store.begin(view, SHAPE, BEGINS)


def whole(store: ViewStore, view: str) -> tuple[int, int]:
    """Check that what is read is the view after one batch; which version and batch that is."""
    try:
        answer = store.ask(view, Query())
    except NotFoundError:
        return 0, 0
    last = answer.version.last
    assert last is not None
    wanted = rows(last.batch)[1 if last.batch else 0 :]
    assert [(row["user"], row["total"]) for row in answer.rows] == wanted
    return answer.version.number, last.batch


def kill_after(number: int) -> None:
    """Have the process killed after a statement."""
    left = number

    def dying(real: Any) -> Any:
        def replaced(self: Session, *args: Any) -> Any:
            nonlocal left
            done = real(self, *args)
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return replaced

    for method in ("execute", "execute_many"):
        setattr(Session, method, dying(getattr(Session, method)))


def is_killed(store: ViewStore, view: str, number: int) -> bool:
    """Whether a process that was to be killed after so many statements had as many."""
    child = os.fork()
    if child == 0:
        kill_after(number)
        keep(store, view)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def main() -> None:
    store, step = open_store(sys.argv[1]), int(sys.argv[2])
    seen: list[tuple[int, int]] = []
    while is_killed(store, view := f"view{len(seen)}", len(seen) * step + 1):
        seen.append(whole(store, view))
        keep(store, view)
        assert whole(store, view) == END
        # What the crash left behind is gone, at the latest when the query starts again.
        assert [one.number for one in store.versions() if one.view == view] == [VERSIONS]
    assert len(seen) * step > 50, "the statements were not reached"
    assert seen == sorted(seen), "a reader saw the view go back"
    assert set(seen) == {(0, 0), (1, 0), (1, 1), (2, 1)}


if __name__ == "__main__":
    main()
