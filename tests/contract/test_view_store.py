"""What every store of views does, in SQLite and in PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.support import applying
from tests.support.view_writer import SHAPE, commit, rows

from penstock.errors import ConflictError, NotFoundError, UnavailableError, UsageError
from penstock.views.kinds import Kind
from penstock.views.query import Query
from penstock.views.store import ViewStore, open_store
from penstock.views.version import Column, Commit, Shape, State, Version

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty one: in PostgreSQL a schema, which is made sooner than a database."""
    if request.param == "sqlite":
        return str(tmp_path / "views.db")
    server = str(request.getfixturevalue("postgres"))
    name = f"test_{uuid.uuid4().hex[:8]}"
    with closing(applying.connect(server)) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        connection.commit()
    return f"{server} options=-csearch_path={name}"


@pytest.fixture
def where(database: str) -> str:
    """The URL of an empty store."""
    if "host=" not in database:
        return f"sqlite:///{database}"
    parts = dict(part.split("=", 1) for part in database.split())
    address = f"{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}"
    return f"postgresql://{address}?options={quote(parts['options'])}"


@pytest.fixture
def store(where: str) -> ViewStore:
    return open_store(where)


def ask(store: ViewStore, view: str = "totals", **parameters: str) -> list[dict[str, Any]]:
    return store.ask(view, Query.parse(parameters.items())).rows


def sql(database: str, statement: str) -> list[tuple[Any, ...]]:
    with closing(applying.connect(database)) as connection:
        return list(connection.execute(statement).fetchall())


def begun(store: ViewStore, begins: int = 0) -> Version:
    return store.begin("totals", SHAPE, {"orders": {"0": begins}})


# -- batches


def test_a_store_that_is_not_there_yet(store: ViewStore) -> None:
    assert store.versions() == []
    with pytest.raises(NotFoundError, match="there is none"):
        ask(store)


def test_rows_come_with_the_input_they_reflect(store: ViewStore, database: str) -> None:
    version = begun(store)
    with pytest.raises(NotFoundError, match="nothing is in it yet"):
        ask(store)
    assert store.write(version, commit(0), rows(0), [])
    answer = store.ask("totals", Query())
    assert answer.version.last == commit(0)
    assert answer.version.state is State.CURRENT
    assert [(row["user"], row["total"]) for row in answer.rows] == rows(0)
    assert sql(database, "SELECT * FROM totals ORDER BY 1") == rows(0)


def test_a_batch_that_comes_again_changes_nothing(store: ViewStore) -> None:
    version = begun(store)
    assert store.write(version, commit(0), rows(0), [])
    assert not store.write(version, commit(0), [("u9", 9)], [])
    assert not [row for row in ask(store) if row["user"] == "u9"]
    assert begun(store).last == commit(0)


def test_keys_are_replaced_and_removed(store: ViewStore) -> None:
    version = begun(store)
    store.write(version, commit(0), rows(0), [])
    store.write(version, commit(1), [("u1", 77)], [("u0",), ("nobody",)])
    found = {row["user"]: row["total"] for row in ask(store)}
    assert found == {"u1": 77, "u2": 10, "u3": 10, "u4": 10}


def test_a_batch_that_is_not_the_next_one(store: ViewStore) -> None:
    version = begun(store)
    with pytest.raises(ConflictError, match="it has 0 batches, and this is number 2"):
        store.write(version, commit(1), rows(1), [])
    for batch in range(3):
        store.write(version, commit(batch), rows(batch), [])
    with pytest.raises(ConflictError, match="it has 3 batches, and this is number 1"):
        store.write(version, commit(0), rows(0), [])
    with pytest.raises(ConflictError, match="it belongs to query q, and this is other"):
        store.write(version, commit(3, "other"), rows(3), [])
    assert store.current("totals").last == commit(2)


def test_a_query_with_other_columns(store: ViewStore) -> None:
    begun(store)
    other = Shape((*SHAPE.columns, Column("more", Kind.TEXT)), SHAPE.key)
    with pytest.raises(
        ConflictError, match=r"user text, total integer, key \[\"user\"\].*rebuild totals"
    ):
        store.begin("totals", other, None)


def test_names_that_are_somebody_elses(store: ViewStore, database: str) -> None:
    connection = applying.connect(database)
    connection.execute("CREATE TABLE totals (mine TEXT)")
    connection.commit()
    connection.close()
    with pytest.raises(ConflictError, match="none of Penstock's"):
        begun(store)
    for name in ("Totals", "a-b", "penstock_x", 'x"; DROP TABLE totals', "", "x" * 49):
        with pytest.raises(UsageError, match="choose another name"):
            store.begin(name, SHAPE, None)
    for column in ("count(1)", 'a"b', "a%b"):
        with pytest.raises(UsageError, match="alias"):
            store.begin("x", Shape((Column(column, Kind.TEXT),), (column,)), None)
    assert sql(database, "SELECT * FROM totals") == []


def test_somebody_who_reads_while_it_is_written(store: ViewStore) -> None:
    """Every answer is the view after one batch, and says after which."""
    version = begun(store)
    store.write(version, commit(0), rows(0), [])
    wrong: list[object] = []
    seen: set[int] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            answer = store.ask("totals", Query())
            last = answer.version.last
            assert last is not None
            seen.add(last.batch)
            if [(row["user"], row["total"]) for row in answer.rows] != rows(last.batch):
                wrong.append(answer)

    thread = threading.Thread(target=read)
    thread.start()
    for batch in range(1, 30):
        store.write(version, commit(batch), rows(batch), [])
    done.set()
    thread.join()
    assert not wrong
    assert len(seen) > 1


# -- versions


def test_a_rebuild_takes_the_place_when_it_has_caught_up(store: ViewStore, database: str) -> None:
    old = begun(store)
    for batch in range(2):
        store.write(old, commit(batch), rows(batch), [])
    assert store.plan_rebuild("totals").number == 2
    new = begun(store)
    assert new.number == 2
    store.write(new, commit(0, "q2"), [("new", 1)], [])
    # The old one is read, and kept current, until the new one has seen as much.
    assert store.write(old, commit(2), rows(2), [])
    store.write(new, commit(1, "q2"), [("new", 2)], [])
    assert store.current("totals").number == 1
    assert sql(database, "SELECT * FROM totals ORDER BY 1") == rows(2)
    store.write(new, commit(2, "q2"), [("new", 3)], [])
    answer = store.ask("totals", Query())
    assert (answer.version.number, answer.version.last) == (2, commit(2, "q2"))
    assert answer.rows == [{"user": "new", "total": 3}]
    assert sql(database, "SELECT * FROM totals") == [("new", 3)]
    with pytest.raises(ConflictError, match="version 2 took its place"):
        store.write(old, commit(3), rows(3), [])
    assert [version.number for version in store.versions()] == [2]
    with pytest.raises(Exception, match="totals__v1"):
        sql(database, "SELECT * FROM totals__v1")


def test_a_reader_of_the_old_version_does_not_hold_up_the_new(
    store: ViewStore, database: str
) -> None:
    store.write(begun(store), commit(0), rows(0), [])
    store.plan_rebuild("totals")
    new = begun(store)
    with closing(applying.connect(database)) as reader:
        reader.execute("BEGIN")
        assert len(reader.execute("SELECT * FROM totals__v1").fetchall()) == len(rows(0))
        store.write(new, commit(0, "q2"), rows(0), [])
        assert store.current("totals").number == 2
        assert len(reader.execute("SELECT * FROM totals__v1").fetchall()) == len(rows(0))
    begun(store)
    assert [version.number for version in store.versions()] == [2]


def test_a_rebuild_with_other_columns(store: ViewStore, database: str) -> None:
    store.write(begun(store), commit(0), rows(0), [])
    store.plan_rebuild("totals")
    shape = Shape((Column("shop", Kind.TEXT), Column("sum", Kind.REAL)), ("shop",))
    new = store.begin("totals", shape, {"orders": {"0": 0}})
    store.write(new, commit(0, "q2"), [("a", 1.5)], [])
    assert sql(database, "SELECT shop, sum FROM totals") == [("a", 1.5)]


def test_a_rebuild_waits_for_time_as_well(store: ViewStore) -> None:
    old = begun(store)
    store.write(old, Commit("q", 0, {"orders": {"0": 10}}, 500, 5), rows(0), [])
    store.plan_rebuild("totals")
    new = begun(store)
    store.write(new, Commit("q2", 0, {"orders": {"0": 10}}, 400, 5), rows(0), [])
    assert store.current("totals").number == 1
    store.write(new, Commit("q2", 1, {"orders": {"0": 10}}, 500, 5), rows(0), [])
    assert store.current("totals").number == 2


def test_a_rebuild_that_is_asked_for_again(store: ViewStore) -> None:
    store.write(begun(store), commit(0), rows(0), [])
    store.plan_rebuild("totals")
    given_up = begun(store)
    assert store.plan_rebuild("totals").number == 3
    with pytest.raises(ConflictError, match="version 3 took its place"):
        store.write(given_up, commit(0, "q2"), rows(0), [])
    assert [(v.number, v.state) for v in store.versions()] == [
        (1, State.CURRENT),
        (3, State.BUILDING),
    ]


def test_a_dropped_view_is_gone_and_its_number_too(store: ViewStore, database: str) -> None:
    version = begun(store)
    store.write(version, commit(0), rows(0), [])
    store.drop("totals")
    assert store.versions() == []
    with pytest.raises(ConflictError, match="the view was dropped"):
        store.write(version, commit(1), rows(1), [])
    with pytest.raises(Exception, match="totals"):
        sql(database, "SELECT * FROM totals")
    # Otherwise a checkpoint that is left over would go on in the middle.
    assert begun(store).number == 2
    for operation in (store.drop, store.plan_rebuild):
        with pytest.raises(NotFoundError, match="there is none"):
            operation("other")


# -- crashes


@pytest.mark.timeout(300)
def test_killed_after_every_statement(where: str) -> None:
    """Whoever reads then sees the view after some batch; the query goes on to the right end."""
    step = "1" if where.startswith("sqlite") else "3"  # which connects each time, and takes longer
    command = [sys.executable, "-m", "tests.support.view_writer", where, step]
    done = subprocess.run(command, check=False, capture_output=True, cwd=ROOT, timeout=240)
    assert done.returncode == 0, done.stderr.decode()


# -- questions


KINDS = Shape(
    (
        Column("id", Kind.INTEGER),
        Column("price", Kind.DECIMAL),
        Column("at", Kind.TIMESTAMP),
        Column("day", Kind.DATE),
        Column("open", Kind.BOOLEAN),
        Column("weight", Kind.REAL),
        Column("data", Kind.BINARY),
        Column("tags", Kind.JSON),
        Column("note", Kind.TEXT),
    ),
    ("id",),
)


@pytest.fixture
def things(store: ViewStore) -> ViewStore:
    version = store.begin("things", KINDS, None)
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    written: list[tuple[object, ...]] = [
        (1, Decimal("9.50"), noon, date(2026, 1, 2), True, 0.5, b"\0\1", '["a"]', "b"),
        (
            2,
            Decimal("10.25"),
            noon.replace(hour=13, microsecond=5),
            date(2026, 1, 3),
            False,
            2.0,
            b"",
            "{}",
            "B",
        ),
        (3, None, None, None, None, None, None, None, None),
    ]
    store.write(version, commit(0), written, [])
    return store


def test_values_are_the_same_from_every_store(things: ViewStore) -> None:
    first, _, last = ask(things, "things")
    assert first == {
        "id": 1,
        "price": "9.50",
        "at": "2026-01-02T12:00:00.000000Z",
        "day": "2026-01-02",
        "open": True,
        "weight": 0.5,
        "data": "AAE=",
        "tags": ["a"],
        "note": "b",
    }
    assert set(last.values()) == {3, None}


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ({"id": "eq.2"}, [2]),
        ({"id": "neq.2"}, [1, 3]),
        ({"id": "in.(1,3)"}, [1, 3]),
        ({"price": "gt.9.5"}, [2]),
        ({"price": "eq.9.5"}, [1]),
        ({"at": "gte.2026-01-02T13:00:00Z"}, [2]),
        ({"at": "lt.2026-01-02T13:00:00+01:00"}, []),
        ({"day": "lte.2026-01-02"}, [1]),
        ({"open": "eq.true"}, [1]),
        ({"data": "eq.AAE="}, [1]),
        ({"weight": "gte.0.5"}, [1, 2]),
        ({"note": "eq.b"}, [1]),
        ({"note": "is.null"}, [3]),
        ({"tags": "is.notnull"}, [1, 2]),
        ({"order": "price.desc"}, [3, 2, 1]),
        ({"order": "price"}, [1, 2, 3]),
        ({"order": "note"}, [2, 1, 3]),
        ({"order": "open.desc,id"}, [3, 1, 2]),
        ({"limit": "1", "offset": "1"}, [2]),
        ({"note": "eq.' OR 1=1 --"}, []),
        ({"note": "eq.%s?"}, []),
    ],
)
def test_questions(things: ViewStore, asked: dict[str, str], ids: list[int]) -> None:
    assert [row["id"] for row in ask(things, "things", **asked)] == ids


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"nothing": "eq.1"}, "no column nothing"),
        ({'id" OR 1=1 --': "eq.1"}, "no column"),
        ({"order": "id;drop"}, "no column id;drop"),
        ({"order": "id.up"}, "COLUMN.desc"),
        ({"id": "1"}, "names no operator"),
        ({"id": "like.1"}, "names no operator"),
        ({"id": "eq.one"}, "of kind integer"),
        ({"id": f"eq.{2**64}"}, "of kind integer"),
        ({"at": "eq.noon"}, "of kind timestamp"),
        ({"note": "eq.\0"}, "of kind text"),
        ({"tags": "eq.{}"}, "nested"),
        ({"id": "in.1"}, "no list"),
        ({"id": "is.2"}, "is.null"),
        ({"limit": "1001"}, "from 0 to 1000"),
        ({"offset": "-1"}, "from 0"),
    ],
)
def test_questions_that_make_no_sense(things: ViewStore, asked: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ask(things, "things", **asked)


def test_whether_there_are_more(things: ViewStore) -> None:
    assert things.ask("things", Query(limit=2)).more
    assert not things.ask("things", Query(limit=3)).more


def test_a_question_that_takes_too_long(things: ViewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.views.store.VIEW_READ_SECONDS_MAX", 0.05)
    slow = {
        "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
        "postgres": "SELECT pg_sleep(10)",
    }
    kind = "sqlite" if "Sqlite" in type(things._database).__name__ else "postgres"
    with (
        pytest.raises(UnavailableError, match="takes longer than"),
        things._reading("cannot wait") as session,
    ):
        assert session is not None
        session.rows(slow[kind])


def test_nobody_who_reads_can_write(things: ViewStore) -> None:
    with pytest.raises(UnavailableError, match="read"), things._reading("x") as session:
        assert session is not None
        session.execute("DELETE FROM things__v1")
    assert len(ask(things, "things")) == 3


def test_a_store_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'mysql' is no kind of store"):
        open_store("mysql://secret@x/y")
    with pytest.raises(UnavailableError, match="refused") as caught:
        open_store("postgresql://me:secret@127.0.0.1:1/x").versions()
    assert "secret" not in str(caught.value)
    (tmp_path / "x.db").write_text("not a database" * 100)
    with pytest.raises(UnavailableError, match="not a database"):
        open_store(f"sqlite:///{tmp_path}/x.db").versions()
