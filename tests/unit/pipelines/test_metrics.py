"""Progress, for people and for Prometheus."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from penstock.pipelines.folder import Query
from penstock.pipelines.metrics import progress_line, prometheus
from penstock.pipelines.reports import Progress
from penstock.spark.supervised import to_report


def source(end: dict[str, Any] | None, latest: dict[str, Any] | None) -> SimpleNamespace:
    return SimpleNamespace(endOffset=json.dumps(end), latestOffset=json.dumps(latest))


def batch(*sources: SimpleNamespace, states: tuple[int, ...] = ()) -> SimpleNamespace:
    return SimpleNamespace(
        batchId=7,
        numInputRows=1000,
        processedRowsPerSecond=2345.6,
        sources=list(sources),
        stateOperators=[SimpleNamespace(numRowsTotal=rows) for rows in states],
    )


def test_lag_watermark_and_state_come_from_what_spark_says() -> None:
    first = source({"a": {"0": 5}, "$time": {"watermark": 9_000}}, {"a": {"0": 8, "1": 4}})
    second = source({"b": {"0": 1}, "$time": {"watermark": 8_000}}, {"b": {"0": 1}})
    report = to_report("totals", batch(first, second, states=(3, 4)), 99)
    assert report == Progress("totals", 7, 1000, 2345.6, 7, 8_000, 7, 99)
    line = "totals: batch 7, 1,000 rows, 2,346 rows/s, lag 7, watermark 1970-01-01T00:00:08Z"
    assert progress_line(report) == f"{line}, state 7 rows"


def test_what_is_not_known_is_not_said() -> None:
    other = SimpleNamespace(endOffset="12", latestOffset=None)
    quiet = SimpleNamespace(**{**vars(batch(other)), "numInputRows": 0})
    quiet.processedRowsPerSecond = float("nan")
    report = to_report("totals", quiet, 99)
    assert (report.lag, report.watermark_ms, report.state_rows) == (None, None, None)
    assert progress_line(report) == "totals: batch 7, 0 rows"


def test_a_watermark_is_known_when_all_sources_know_theirs() -> None:
    one, none = {"$time": {"watermark": 1}}, {"$time": {"watermark": None}}
    assert to_report("q", batch(source(one, None), source(none, None)), 0).watermark_ms is None


def test_prometheus() -> None:
    progress = Progress("q", 7, 10, 2.5, 0, None, None, 99)
    text = prometheus("shop", 2, {'to"tals': Query("id", None, progress), "new": Query("id", None)})
    assert 'penstock_pipeline_restarts_total{pipeline="shop"} 2\n' in text
    assert 'penstock_pipeline_lag{pipeline="shop",query="to\\"tals"} 0\n' in text
    assert "watermark" not in text
    assert "new" not in text
