"""Windows over time: results, corrections of them, and the rows that came too late.

`panes` runs on rows as they come, `keeping` where the state of a key is; both are pure functions over
Arrow tables, and Spark appears in `operator` only.
"""

from penstock.spark.windows.aggregates import (
    Aggregate,
    approx_distinct,
    approx_percentile,
    count,
    distinct,
    max_of,
    mean_of,
    min_of,
    percentile,
    rate,
    sum_of,
    top_k,
)
from penstock.spark.windows.kinds import hopping, sessions, sliding, tumbling
from penstock.spark.windows.operator import windows

__all__ = [
    "Aggregate",
    "approx_distinct",
    "approx_percentile",
    "count",
    "distinct",
    "hopping",
    "max_of",
    "mean_of",
    "min_of",
    "percentile",
    "rate",
    "sessions",
    "sliding",
    "sum_of",
    "top_k",
    "tumbling",
    "windows",
]
