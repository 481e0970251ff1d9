"""`penstock transactions`: list, abort."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Final

import typer

from penstock.cli import output
from penstock.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Format,
    Json,
    Output,
    wants_json,
)

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List transactions and abort one that is left open.",
)

_LIST_EXAMPLES: Final = (
    "\b\nExamples:\n  penstock transactions list\n  penstock transactions list --open -o json"
)
_ABORT_EXAMPLES: Final = "\b\nExamples:\n  penstock transactions abort payments-7"


@app.command("list", epilog=_LIST_EXAMPLES)
def list_transactions(
    only_open: Annotated[
        bool, typer.Option("--open", help="Only those that are open now.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Output = Format.TABLE,
    json: Json = False,
) -> None:
    """List transactional ids and what they are doing.

    Readers of committed records wait at an open transaction until it ends or times out.
    """
    from penstock.client import transactions  # noqa: PLC0415 -- keeps --help fast

    found = transactions.list_transactions(bootstrap, only_open=only_open)
    if wants_json(output_format, json):
        output.emit_json([dataclasses.asdict(one) for one in found])
        return
    output.emit_table(
        {
            "TRANSACTIONAL ID": "<",
            "STATE": "<",
            "PRODUCER": ">",
            "EPOCH": ">",
            "OPEN FOR": ">",
            "TIMEOUT": ">",
            "PARTITIONS": "<",
        },
        [
            (
                one.name,
                one.state,
                one.producer_id,
                one.epoch,
                None if one.open_seconds is None else f"{one.open_seconds:.1f} s",
                f"{one.timeout_seconds:g} s",
                ", ".join(one.partitions) or None,
            )
            for one in found
        ],
    )


@app.command("abort", epilog=_ABORT_EXAMPLES)
def abort(
    name: Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Abort the open transaction of an id.

    Its producer is fenced and has to start anew.
    """
    from penstock.client import transactions  # noqa: PLC0415 -- keeps --help fast

    aborted = transactions.abort_transaction(bootstrap, name)
    places = ", ".join(aborted.partitions) or "no partition"
    output.message(f"aborted the transaction of {name} ({places})")
