"""Names of views and columns: plain enough to stand in SQL, in a URL and in a file unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from penstock.errors import UsageError

_VIEW: Final = re.compile(r"[a-z][a-z0-9_]{0,47}")
_COLUMN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
# What the databases and we keep for ourselves.
_RESERVED: Final = ("penstock_", "sqlite_", "pg_")


def check_view(name: str) -> None:
    """Pass for what can be a view's name.

    Raises:
        UsageError: it cannot.
    """
    if not _VIEW.fullmatch(name) or name.startswith(_RESERVED):
        cause = (
            "a view's name has lower-case letters, digits and _, begins with a letter, has 48 of "
        )
        cause += f"them at most, and begins with none of {', '.join(_RESERVED)}"
        raise UsageError(f"cannot have a view named '{name}'", cause, "choose another name")


def check_columns(operation: str, names: Iterable[str]) -> None:
    """Pass for what can be the columns of a view.

    Raises:
        UsageError: a name is not plain, or two differ only in case, which SQLite does not see.
    """
    seen: set[str] = set()
    for name in names:
        if not _COLUMN.fullmatch(name):
            cause = f"the column '{name}' has other than letters, digits and _, or more than 63"
            raise UsageError(operation, cause, "give it a plain name with alias()")
        if name.lower() in seen:
            raise UsageError(operation, f"there are two columns {name}", "rename one of them")
        seen.add(name.lower())


def quoted(name: str) -> str:
    """A name as it stands in a statement."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Iterable[str]) -> str:
    """Names as they stand in a statement, separated by commas."""
    return ", ".join(map(quoted, names))


def table_of(view: str, version: int) -> str:
    """The table that holds one version of a view."""
    return f"{view}__v{version}"
