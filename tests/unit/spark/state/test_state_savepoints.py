"""States seen and copied from outside, on a local disk and in an object store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from moto.server import ThreadedMotoServer
from tests.unit.spark.state.stores import OPERATOR, Store

from penstock.errors import ConflictError, NotFoundError, UsageError
from penstock.spark.state import read_state, savepoint
from penstock.spark.state.bucket import open_bucket
from penstock.spark.state.opened import Opened
from penstock.spark.state.operators import Operator
from penstock.spark.state.places import operator_place
from penstock.spark.state.savepoints import begin


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket of an S3 that runs here."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        fsspec.filesystem("s3", skip_instance_cache=True).mkdir("state")
        yield "s3://state"
    server.stop()


@pytest.fixture(params=["disk", "store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "disk":
        return str(tmp_path)
    return f"{request.getfixturevalue('bucket')}/{tmp_path.name}"


def query(folder: str, batches: int = 12) -> str:
    """A checkpoint as a query leaves it: batch 12 is written, but not committed."""
    checkpoint = f"{folder}/checkpoint"
    store = Store(operator_place(checkpoint, "totals"))
    for number in range(batches + 1):
        store.run(number, [(key, 1, None) for key in range(number)])
    offsets = json.dumps({"orders": {"0": 77}, "$time": {"watermark": 5}})
    for name, text in (("commits/11", "v1\n{}"), ("offsets/11", f"v1\n{{}}\n{offsets}")):
        with fsspec.open(f"{checkpoint}/{name}", "wt", auto_mkdir=True) as file:
            file.write(text)
    return checkpoint


def totals_of(checkpoint: str) -> dict[int, int]:
    rows = read_state(checkpoint, "totals").to_pylist()
    return {row["key"]: row["total"] for row in rows}


def test_the_state_of_the_last_committed_batch_is_seen(folder: str) -> None:
    assert totals_of(query(folder)) == {key: 11 - key for key in range(11)}


def test_a_state_that_is_not_there_is_named(folder: str) -> None:
    with pytest.raises(NotFoundError, match="name one of: totals"):
        read_state(query(folder), "sums")
    with pytest.raises(NotFoundError, match="no batch"):
        read_state(f"{folder}/other", "totals")


def test_a_query_begins_from_a_savepoint_with_other_buckets(folder: str) -> None:
    contents = savepoint(query(folder), f"{folder}/saved")
    assert contents["positions"] == ['{"orders": {"0": 77}}']
    found: dict[int, int] = {}
    for number in range(3):
        root = operator_place(f"{folder}/new", "totals")
        opened = open_bucket(root, number, 3, OPERATOR.state, OPERATOR.by, 0, Opened())
        begin(opened, number, 3, 0, f"{folder}/saved", "totals")
        opened.write(0, opened.stored_schema().empty_table())
        opened = open_bucket(root, number, 3, OPERATOR.state, OPERATOR.by, 1, Opened())
        rows = opened.all().to_pylist()
        assert not found.keys() & {row["key"] for row in rows}
        found |= {row["key"]: row["total"] for row in rows}
    assert found == {key: 11 - key for key in range(11)}


def test_a_savepoint_replaces_nothing(tmp_path: Path) -> None:
    checkpoint = query(str(tmp_path))
    savepoint(checkpoint, str(tmp_path / "saved"))
    with pytest.raises(ConflictError, match="not empty"):
        savepoint(checkpoint, str(tmp_path / "saved"))


def test_what_does_not_fit_a_savepoint_is_refused(tmp_path: Path) -> None:
    savepoint(query(str(tmp_path)), str(tmp_path / "saved"))
    root = operator_place(str(tmp_path / "new"), "totals")
    narrow = Operator("t", ("key",), OPERATOR.function, OPERATOR.state.remove(1), OPERATOR.output)
    opened = open_bucket(root, 0, 1, narrow.state, narrow.by, 0, Opened())
    with pytest.raises(UsageError, match="column total is gone"):
        begin(opened, 0, 1, 0, str(tmp_path / "saved"), "totals")
    with pytest.raises(NotFoundError, match="has only totals"):
        begin(opened, 0, 1, 0, str(tmp_path / "saved"), "sums")
    with pytest.raises(NotFoundError, match="is no savepoint"):
        begin(opened, 0, 1, 0, str(tmp_path / "none"), "totals")


def test_the_number_of_buckets_is_fixed(tmp_path: Path) -> None:
    root = operator_place(query(str(tmp_path)), "totals")
    with pytest.raises(UsageError, match="it has 1 buckets, not 2"):
        open_bucket(root, 1, 2, OPERATOR.state, OPERATOR.by, 13, Opened())
