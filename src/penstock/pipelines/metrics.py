"""The progress of a pipeline for people, on a line, and for Prometheus, in its text format."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from penstock.pipelines.folder import Query
from penstock.pipelines.reports import Progress

_METRICS: Final = {
    "batch": "the number of the last batch",
    "rows": "rows of the last batch",
    "rows_per_second": "rows of the last batch for each second it took",
    "lag": "records that are there and not read",
    "watermark_ms": "the watermark of the last batch, in milliseconds since 1970",
    "state_rows": "rows in Spark's state stores",
    "at_ms": "when the last batch ended, in milliseconds since 1970",
}


def progress_line(progress: Progress) -> str:
    """`totals: batch 7, 1,000 rows, 2,000 rows/s, lag 0, watermark 2026-01-02T03:04:05Z`."""
    parts = [f"batch {progress.batch}", f"{progress.rows:,} rows"]
    if progress.rows:
        parts.append(f"{progress.rows_per_second:,.0f} rows/s")
    if progress.lag is not None:
        parts.append(f"lag {progress.lag:,}")
    if progress.watermark_ms is not None:
        parts.append(f"watermark {moment(progress.watermark_ms)}")
    if progress.state_rows is not None:
        parts.append(f"state {progress.state_rows:,} rows")
    return f"{progress.query}: {', '.join(parts)}"


def moment(time_ms: int) -> str:
    """ISO 8601 in UTC, with milliseconds where there are any."""
    timespec = "milliseconds" if time_ms % 1000 else "seconds"
    try:
        text = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec=timespec)
    except (ValueError, OverflowError, OSError):  # no year of four digits: a wrong clock, or unit
        return f"{time_ms} ms"
    return text.replace("+00:00", "Z")


def prometheus(pipeline: str, restarts: int, queries: Mapping[str, Query]) -> str:
    """All of it as gauges, and the restarts as a counter."""
    head = "penstock_pipeline"
    lines = [f"# TYPE {head}_restarts_total counter"]
    lines.append(f'{head}_restarts_total{{pipeline="{pipeline}"}} {restarts}')
    for field, meaning in _METRICS.items():
        found = {name: _value(query, field) for name, query in queries.items()}
        known = {name: value for name, value in found.items() if value is not None}
        if known:
            lines.append(f"# HELP {head}_{field} {meaning}")
            lines.append(f"# TYPE {head}_{field} gauge")
        for name, value in known.items():
            label = name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
            lines.append(f'{head}_{field}{{pipeline="{pipeline}",query="{label}"}} {value}')
    return "\n".join(lines) + "\n"


def _value(query: Query, field: str) -> float | None:
    value: float | None = None if query.progress is None else getattr(query.progress, field)
    return value
