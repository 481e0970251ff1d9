"""A query keeps a view: what is read is the input up to a position, also after a crash and a rebuild."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from tests.clients.brokers import Broker
from tests.clients.contract import Record
from tests.clients.wire import Wire

from penstock.client.connection import admin, library
from penstock.errors import ConflictError, UsageError
from penstock.spark import materialize, read_stream
from penstock.views import Query, ViewStore, open_store
from penstock.views.beginnings import BeginningGoneError
from penstock.views.store import Answer

SCHEMA = "user string, amount double, _offset bigint"
NOW: dict[str, Any] = {"availableNow": True}


class Shop:
    """A topic of orders, and a view of what each user has spent."""

    def __init__(self, spark: SparkSession, broker: Broker, wire: Wire, topic: str, folder: Path):
        self.spark, self.broker, self.wire, self.topic = spark, broker, wire, topic
        self.where = f"sqlite:///{folder}/views.db"
        self.checkpoint = folder / "checkpoint"
        self.count = 0

    @property
    def store(self) -> ViewStore:
        return open_store(self.where)

    def order(self, count: int) -> None:
        numbers = range(self.count, self.count + count)
        self.count += count
        values = (b'{"user": "u%d", "amount": %d}' % (number % 3, number) for number in numbers)
        self.wire.write(self.topic, [Record(value) for value in values])

    def orders(self, **options: object) -> DataFrame:
        given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 30, **options}
        return read_stream(self.spark, self.broker.bootstrap, self.topic, SCHEMA, **given)

    def totals(self) -> DataFrame:
        return self.orders().groupBy("user").agg(sql.sum("amount").alias("total"))

    def keep(self, frame: DataFrame, **options: Any) -> None:
        given: dict[str, Any] = {"key": ["user"], "trigger": NOW, **options}
        checkpoint = str(self.checkpoint)
        query = materialize(frame, "totals", store=self.where, checkpoint=checkpoint, **given)
        query.awaitTermination()

    def answer(self) -> Answer:
        return self.store.ask("totals", Query())

    def check(self, version: int) -> None:
        """The view is what all orders give, and says so."""
        answer = self.answer()
        sums = {f"u{k}": float(sum(range(k, self.count, 3))) for k in range(3)}
        assert {row["user"]: row["total"] for row in answer.rows} == sums
        last = answer.version.last
        assert last is not None
        assert (answer.version.number, last.position) == (version, {self.topic: {"0": self.count}})

    def forget_before(self, offset: int) -> None:
        with admin(self.broker.bootstrap, "delete records") as client:
            client.delete_records({library().TopicPartition(self.topic, 0): offset})


@pytest.fixture
def shop(spark: SparkSession, broker: Broker, wire: Wire, topic: str, tmp_path: Path) -> Shop:
    return Shop(spark, broker, wire, topic, tmp_path)


def test_a_view_goes_on_and_is_rebuilt(shop: Shop) -> None:
    shop.order(50)
    shop.keep(shop.totals())
    shop.check(version=1)
    # As if Spark had died after the view's commit and before its own.
    commits = (shop.checkpoint / "v1/commits").glob("[0-9]*")
    max(commits, key=lambda file: int(file.name)).unlink()
    shop.order(20)
    shop.keep(shop.totals())
    shop.check(version=1)

    shop.store.plan_rebuild("totals")
    shop.order(5)
    shop.keep(shop.totals())
    shop.check(version=2)

    shop.forget_before(10)
    shop.store.plan_rebuild("totals")
    words = f"offsets 0 to 9 of {shop.topic} partition 0 are missing"
    with pytest.raises(BeginningGoneError, match=words):
        shop.keep(shop.totals())
    shop.check(version=2)
    # A place that is named is no way around it: the view that is there has seen more.
    later = {"startingOffsets": f'{{"{shop.topic}": {{"0": 10}}}}'}
    with pytest.raises(BeginningGoneError, match=words):
        shop.keep(shop.orders(**later))


def test_a_view_from_a_place_on(shop: Shop) -> None:
    shop.order(20)
    shop.forget_before(10)
    with pytest.raises(BeginningGoneError, match="offsets 0 to 9"):
        shop.keep(shop.orders())
    rows = shop.orders(startingOffsets=f'{{"{shop.topic}": {{"0": 15}}}}')
    shop.keep(rows, order_by=["_offset"])
    assert [row["amount"] for row in shop.answer().rows] == [18.0, 19.0, 17.0]
    assert shop.answer().version.begins == {shop.topic: {"0": 15}}


def test_a_changelog_and_values_of_all_kinds(shop: Shop) -> None:
    shop.order(9)
    kind = "CASE WHEN amount = 6 THEN 'delete' WHEN amount = 7 THEN 'update_preimage' ELSE 'insert' END"
    frame = shop.orders().select(
        "user",
        "amount",
        sql.expr(kind).alias("_change_type"),
        sql.col("_offset").alias("_commit_version"),
        sql.timestamp_millis(sql.col("_offset") * 1000).alias("at"),
        sql.struct("user", "amount").alias("nested"),
        sql.col("amount").cast("decimal(10,2)").alias("price"),
        sql.encode("user", "utf-8").alias("bytes"),
        (sql.col("amount") > 4).alias("large"),
        sql.expr("date_from_unix_date(1)").alias("day"),
    )
    shop.keep(frame, order_by=["_commit_version"])
    first, second = shop.answer().rows
    assert first == {
        "user": "u1",
        "amount": 4.0,
        "at": "1970-01-01T00:00:04.000000Z",
        "nested": {"user": "u1", "amount": 4.0},
        "price": "4.00",
        "bytes": "dTE=",
        "large": False,
        "day": "1970-01-02",
    }
    assert (second["user"], second["amount"], second["large"]) == ("u2", 8.0, True)


def test_what_is_refused_before_anything_runs(shop: Shop) -> None:
    shop.order(1)
    with pytest.raises(UsageError, match="there is no column shop; there are user"):
        shop.keep(shop.orders(), key=["shop"])
    with pytest.raises(UsageError, match="it has no key"):
        shop.keep(shop.orders(), key=[])
    with pytest.raises(UsageError, match="take update or append"):
        shop.keep(shop.orders(), output_mode="complete")
    with pytest.raises(UsageError, match=r"the column 'sum\(amount\)'.*alias"):
        shop.keep(shop.orders().groupBy("user").sum("amount"))
    with pytest.raises(UsageError, match="column length is of type interval"):
        shop.keep(shop.orders().withColumn("length", sql.expr("INTERVAL '1' DAY")))
    assert shop.store.versions() == []
    other = shop.spark.readStream.format("rate").load().withColumnRenamed("value", "user")
    shop.keep(shop.orders(), order_by=["_offset"])
    shop.store.plan_rebuild("totals")
    with pytest.raises(ConflictError, match="drop the view and build it anew"):
        shop.keep(other)
