"""From what was published and what is to be, the changes that lead from one to the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from penstock.spark.windows.columns import CHANGE

INSERT: Final = "insert"
DELETE: Final = "delete"
BEFORE: Final = "update_preimage"
AFTER: Final = "update_postimage"


def changes(before: pl.DataFrame, after: pl.DataFrame, ids: Sequence[str]) -> pl.DataFrame:
    """The changes, each window's old line before its new one."""
    kinds = (
        (DELETE, before, after, "anti"),
        (BEFORE, before, after, "semi"),
        (AFTER, after, before, "semi"),
        (INSERT, after, before, "anti"),
    )
    found = [
        lines.join(others, on=ids, how=how, nulls_equal=True).with_columns(
            pl.lit(kind).alias(CHANGE)
        )
        for kind, lines, others, how in kinds
    ]
    return pl.concat(found).sort(ids, maintain_order=True)
