"""Both brokers and both databases, for what must be the same on any of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.brokers import RUNNERS, Broker
from tests.support import applying
from tools.postgres import programs, running_postgres


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("penstock", id="on-penstock"),
        pytest.param("kafka", id="on-kafka", marks=pytest.mark.compat),
    ],
)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    with RUNNERS[request.param](tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    if programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    with running_postgres() as found:
        yield found


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where to write to: an empty database."""
    if request.param == "sqlite":
        return str(tmp_path / "applied.db")
    server = str(request.getfixturevalue("postgres"))
    name = f"test_{uuid.uuid4().hex[:8]}"
    connection = applying.connect(server)
    connection.autocommit = True
    connection.execute(f"CREATE DATABASE {name}")
    connection.close()
    return server.replace("dbname=postgres", f"dbname={name}")
