"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Final

import typer

from penstock.errors import UsageError

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"


class Format(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT[,...]",
        envvar="PENSTOCK_BOOTSTRAP",
        help="Broker to connect to: Penstock or any other Kafka broker.",
    ),
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask; needed where nobody can be asked.")
]
Output = Annotated[Format, typer.Option("--output", "-o", help="How to print the result.")]
Json = Annotated[bool, typer.Option("--json", help="The same as --output json.")]


def wants_json(output: Format, json: bool) -> bool:
    """Whether either way of asking for JSON was used."""
    return json or output is Format.JSON


def check_can_ask(operation: str, risk: str) -> None:
    """Pass where a person can be asked before something is done for good.

    Raises:
        UsageError: nobody is there.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(operation, f"{risk}, and there is no terminal to ask on", "add --yes")


def parse_pairs(option: str, texts: Iterable[str]) -> list[tuple[str, str]]:
    """Read NAME=VALUE; the value may hold further equals signs, and be empty.

    Raises:
        UsageError: a text is something else.
    """
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            cause = "it has no name" if equals else "it has no '='"
            raise UsageError(f"cannot read {option} '{text}'", cause, "write NAME=VALUE")
        pairs.append((name, value))
    return pairs
