"""Names of states in a query: two operators under one name would overwrite each other's files."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import DataFrame

from penstock.errors import UsageError

# What the plan of a query calls the rows of an operator. It has an id of the operator, because the same
# rows may be used in several places of a query: each works on the state before and leaves the same.
_ALIAS: Final = "penstock_state_"


def named(frame: DataFrame, name: str) -> DataFrame:
    """The rows of an operator, by which its query knows what it is called."""
    return frame.alias(f"{_ALIAS}{uuid.uuid4().hex}_{name}")


def check_names(frame: DataFrame) -> None:
    """See that every operator of a query has a state of its own.

    Raises:
        UsageError: two of them have the same name.
    """
    owners: dict[str, str] = {}
    for alias in _aliases(frame._jdf.queryExecution().analyzed()):
        if not alias.startswith(_ALIAS):
            continue
        owner, _, name = alias.removeprefix(_ALIAS).partition("_")
        if owners.setdefault(name, owner) != owner:
            cause = f"two of its operators keep their state under the name {name!r}"
            raise UsageError("cannot start the query", cause, "give one of them another name=")


def _aliases(plan: Any) -> Iterator[str]:
    if plan.nodeName() == "SubqueryAlias":
        yield plan.alias()
    children = plan.children()
    for number in range(children.size()):
        yield from _aliases(children.apply(number))
