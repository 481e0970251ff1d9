"""Checkpoints whose newest files are missing or damaged: no row is lost, none is there twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.clients.brokers import Broker
from tests.clients.wire import Wire
from tests.spark.test_sqlite_sink import fill, orders, query, run

from penstock.errors import ConflictError
from penstock.spark import SqliteSink
from penstock.spark.checkpoints import Plans

OFFSETS = b'v1\n{"batchWatermarkMs":0}\n{"orders":{"0":%d}}'
COMMITS = b'v1\n{"nextBatchWatermarkMs":0}'


def files(folder: Path, batches: int) -> Plans:
    """A checkpoint as Spark leaves it, each batch of which a sink was told of."""
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    (folder / "metadata").write_bytes(b'{"id":"q"}')
    plans = Plans(str(folder))
    for number in range(batches):
        (folder / f"offsets/{number}").write_bytes(OFFSETS % number)
        plans.keep(number)
        (folder / f"commits/{number}").write_bytes(COMMITS)
    return plans


def remove(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [remove, cut, empty])
@pytest.mark.parametrize("name", ["offsets/4", "metadata"])
def test_what_a_sink_was_told_of_is_restored(
    tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    plans = files(tmp_path, 5)
    before = (tmp_path / name).read_bytes()
    damage(tmp_path / name)
    plans.restore()
    assert (tmp_path / name).read_bytes() == before


@pytest.mark.parametrize("damage", [cut, empty])
def test_what_is_damaged_and_can_be_made_anew_is_removed(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    plans = files(tmp_path, 5)
    (tmp_path / "offsets/5").write_bytes(OFFSETS % 5)  # planned; no sink was told
    for name in ("offsets/5", "commits/4"):
        damage(tmp_path / name)
    plans.restore()
    assert sorted(path.name for path in (tmp_path / "offsets").iterdir()) == list("01234")
    assert sorted(path.name for path in (tmp_path / "commits").iterdir()) == list("0123")


@pytest.mark.parametrize("damage", [cut, empty])
def test_the_end_of_the_batch_before_is_damaged_while_one_runs(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """Spark reads the newest file of commits, and would not start with it."""
    plans = files(tmp_path, 5)
    (tmp_path / "commits/4").unlink()
    damage(tmp_path / "commits/3")
    damage(tmp_path / "commits/2")
    damage(tmp_path / "commits/0")  # nobody reads it
    plans.restore()
    assert sorted(path.name for path in (tmp_path / "commits").iterdir()) == list("01")
    assert sorted(path.name for path in (tmp_path / "offsets").iterdir()) == list("01234")


def test_what_is_in_order_stays(tmp_path: Path) -> None:
    plans = files(tmp_path, 5)
    (tmp_path / "offsets/5").write_bytes(OFFSETS.replace(b"{", b"-\n{", 1) % 5)
    found = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    plans.restore()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == found
    kept = tmp_path / "kept-by-penstock/offsets"
    assert sorted(path.name for path in kept.iterdir()) == ["3", "4"]


def test_a_batch_that_became_another_one_is_refused(tmp_path: Path) -> None:
    plans = files(tmp_path, 5)
    (tmp_path / "offsets/4").write_bytes(OFFSETS % 7)
    with pytest.raises(ConflictError, match="offsets/4 is not what it was when batch 4 ran before"):
        plans.keep(4)


def test_a_new_checkpoint_has_nothing_to_restore(tmp_path: Path) -> None:
    Plans(str(tmp_path / "new")).restore()
    assert not (tmp_path / "new").exists()


def test_a_lost_plan_loses_no_rows(
    spark: SparkSession, broker: Broker, wire: Wire, topic: str, tmp_path: Path
) -> None:
    """Spark plans the batch anew with more in it, and the sink has its marker."""
    path, checkpoint = tmp_path / "shop.db", tmp_path / "checkpoint"
    fill(wire, topic, range(40))
    run(orders(spark, broker, topic), SqliteSink(path, "orders"), checkpoint)
    for name in ("offsets", "commits"):
        max((checkpoint / name).glob("[0-9]*"), key=lambda file: int(file.name)).unlink()
    fill(wire, topic, range(40, 60))
    run(orders(spark, broker, topic), SqliteSink(path, "orders"), checkpoint)
    found = query(path, "SELECT amount FROM orders ORDER BY amount")
    assert [amount for (amount,) in found] == list(range(60))
