"""`penstock transactions`: list, commit, abort."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli import output
from penstock.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Format,
    Json,
    Output,
    Yes,
    check_can_ask,
    wants_json,
)
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.client.transactions import TransactionSummary

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List transactions, and commit or abort one that is left open.",
)

_LIST_EXAMPLES: Final = (
    "\b\nExamples:\n  penstock transactions list\n  penstock transactions list --open -o json"
)
_COMMIT_EXAMPLES: Final = "\b\nExamples:\n  penstock transactions commit shop-1"
_ABORT_EXAMPLES: Final = (
    "\b\nExamples:\n  penstock transactions abort payments-7\n"
    "  penstock transactions abort shop-1 --yes"
)

Name = Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")]


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

    Readers of committed records wait at an open transaction until it ends or times out. A two-phase
    transaction never times out: once prepared it waits for its program, or for commit or abort here.
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
                "two-phase" if one.timeout_seconds is None else f"{one.timeout_seconds:g} s",
                ", ".join(one.partitions) or None,
            )
            for one in found
        ],
    )


@app.command("commit", epilog=_COMMIT_EXAMPLES)
def commit(name: Name, yes: Yes = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Commit the prepared two-phase transaction of an id.

    For one whose program does not come back to do it. Its producer is fenced and has to start anew.
    Asks first; where there is no terminal to ask on, it needs --yes.
    """
    from penstock.client import transactions  # noqa: PLC0415 -- keeps --help fast

    operation = f"cannot commit the transaction of {name}"
    found = transactions.open_transaction(bootstrap, name, operation)
    if not found.two_phase:
        cause = "it is not a two-phase transaction, and its producer may not be done"
        raise UsageError(operation, cause, "leave it to its producer, or abort it")
    _ask("commit", found, yes)
    transactions.commit_transaction(bootstrap, name)
    output.message(f"committed the transaction of {name} ({_places(found)})")


@app.command("abort", epilog=_ABORT_EXAMPLES)
def abort(name: Name, yes: Yes = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Abort the open transaction of an id.

    Its producer is fenced and has to start anew. If it is a two-phase transaction this asks first;
    where there is no terminal to ask on, it needs --yes.
    """
    from penstock.client import transactions  # noqa: PLC0415 -- keeps --help fast

    operation = f"cannot abort the transaction of {name}"
    found = transactions.open_transaction(bootstrap, name, operation)
    if found.two_phase:
        _ask("abort", found, yes)
    transactions.abort_transaction(bootstrap, name)
    output.message(f"aborted the transaction of {name} ({_places(found)})")


def _ask(verb: str, found: TransactionSummary, yes: bool) -> None:
    """It may be prepared, and its database may already say how it is to end."""
    if yes:
        return
    check_can_ask(
        f"cannot {verb} the transaction of {found.name}", "its database may say otherwise"
    )
    question = (
        f"{verb} the transaction of {found.name} ({_places(found)}), open for "
        f"{found.open_seconds:.0f} s, whatever its program has stored in its database?"
    )
    typer.confirm(question, abort=True, err=True)


def _places(found: TransactionSummary) -> str:
    return ", ".join(found.partitions) or "no partition"
