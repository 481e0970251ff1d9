"""`penstock views`: list, show, rebuild, drop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

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
    parse_pairs,
    wants_json,
)

if TYPE_CHECKING:
    from penstock.views.version import Position, Version

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List, ask, rebuild and drop materialized views.",
)

_LIST_EXAMPLES: Final = (
    "\b\nExamples:\n  penstock views list --store sqlite:///views.db\n"
    "  penstock views list --store postgresql://me@db.example.org/shop -o json"
)
_SHOW_EXAMPLES: Final = (
    "\b\n"
    "Examples:\n"
    "  penstock views show totals --store sqlite:///views.db\n"
    "  penstock views show totals --where user=eq.ann --where total=gte.10\n"
    "  penstock views show totals --order total.desc --limit 5 -o json"
)
_REBUILD_EXAMPLES: Final = (
    "\b\nExamples:\n  penstock views rebuild totals --store sqlite:///views.db"
)
_DROP_EXAMPLES: Final = (
    "\b\nExamples:\n  penstock views drop totals --store sqlite:///views.db --yes"
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the view.")]
Store = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="STORE",
        envvar="PENSTOCK_VIEWS",
        help="Where the views are: sqlite:///PATH or postgresql://USER@HOST:PORT/DATABASE.",
    ),
]


@app.command("list", epilog=_LIST_EXAMPLES)
def list_views(store: Store, output_format: Output = Format.TABLE, json: Json = False) -> None:
    """List views with their versions, and the input that each version reflects."""
    from penstock.views.store import open_store  # noqa: PLC0415 -- keeps --help fast

    found = open_store(store).versions()
    if wants_json(output_format, json):
        output.emit_json([_facts(version) for version in found])
        return
    output.emit_table(
        {
            "VIEW": "<",
            "VERSION": ">",
            "STATE": "<",
            "KEY": "<",
            "UPDATED": "<",
            "WATERMARK": "<",
            "POSITION": "<",
        },
        [_line(version) for version in found],
    )


@app.command("show", epilog=_SHOW_EXAMPLES)
def show(
    name: Name,
    store: Store,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=OPERATOR.VALUE",
            help="Only such rows; operators are eq, neq, gt, gte, lt, lte, in.(a,b), is.null and "
            "is.notnull. May be repeated.",
        ),
    ] = None,
    order: Annotated[
        str | None, typer.Option(metavar="COLUMN[.desc],...", help="By what to sort.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="COUNT", help="Rows at most.")] = 100,
    output_format: Output = Format.TABLE,
    json: Json = False,
) -> None:
    """Show rows of a view, and the input that they reflect."""
    from penstock.views.query import Query  # noqa: PLC0415 -- keeps --help fast
    from penstock.views.store import open_store  # noqa: PLC0415

    pairs = [*parse_pairs("--where", where or ()), ("limit", str(limit))]
    pairs += [("order", order)] if order else []
    answer = open_store(store).ask(name, Query.parse(pairs))
    if wants_json(output_format, json):
        rest = {"rows": answer.rows, "more": answer.more}
        output.emit_json(_facts(answer.version) | rest)
        return
    shape, last = answer.version.shape, answer.version.last
    assert shape is not None
    assert last is not None
    columns = dict.fromkeys(shape.names, "<")
    output.emit_table(columns, [tuple(row.values()) for row in answer.rows])
    output.message(f"version {answer.version.number}, up to {_position(last.position)}")
    if answer.more:
        output.message("there are more: see --limit and --where")


@app.command("rebuild", epilog=_REBUILD_EXAMPLES)
def rebuild(name: Name, store: Store, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Let a view be built again from the beginning of its topics, into a new version.

    The query that keeps the view begins with it when it is started next. The old version is read
    until the new one has seen as much, which then takes its place at once. Refused if what the old
    version was built from is no longer retained.
    """
    from penstock.errors import ConflictError  # noqa: PLC0415 -- keeps --help fast
    from penstock.views import beginnings  # noqa: PLC0415
    from penstock.views.store import open_store  # noqa: PLC0415

    operation = f"cannot rebuild view {name}"
    views = open_store(store)
    begins = views.current(name).begins
    if begins is None:
        cause = "nobody knows where the input of its query begins"
        raise ConflictError(operation, cause, "drop the view and build it anew")
    found = beginnings.retained(bootstrap, begins, operation)
    beginnings.check_beginning(
        operation, begins, found, lambda topic: beginnings.is_compacted(bootstrap, topic)
    )
    made = views.plan_rebuild(name)
    output.message(f"version {made.number} of {name} is built when its query is started next")


@app.command("drop", epilog=_DROP_EXAMPLES)
def drop(name: Name, store: Store, yes: Yes = False) -> None:
    """Drop a view with all its versions.

    A query that keeps it stops at its next batch. Asks first; where there is no terminal to ask on,
    it needs --yes.
    """
    from penstock.views.store import open_store  # noqa: PLC0415 -- keeps --help fast

    views = open_store(store)
    if not yes:
        check_can_ask(f"cannot drop view {name}", "it cannot be undone")
        typer.confirm(f"drop view {name} in {views.name}?", abort=True, err=True)
    views.drop(name)
    output.message(f"dropped {name}")


def _facts(version: Version) -> dict[str, Any]:
    from penstock.views.kinds import iso_of_ms  # noqa: PLC0415 -- keeps --help fast

    shape, last = version.shape, version.last
    return {
        "view": version.view,
        "version": version.number,
        "state": str(version.state),
        "key": None if shape is None else list(shape.key),
        "columns": None if shape is None else {one.name: str(one.kind) for one in shape.columns},
        "begins": version.begins,
        "position": None if last is None else last.position,
        "watermark": None if last is None else iso_of_ms(last.watermark_ms),
        "updated": None if last is None else iso_of_ms(last.at_ms),
    }


def _line(version: Version) -> tuple[object, ...]:
    facts = _facts(version)
    return (
        version.view,
        version.number,
        facts["state"],
        None if facts["key"] is None else ",".join(facts["key"]),
        facts["updated"],
        facts["watermark"],
        None if facts["position"] is None else _position(facts["position"]),
    )


def _position(position: Position) -> str:
    """`orders 0:120 1:118, payments 0:7`."""
    return ", ".join(
        " ".join([topic, *(f"{number}:{offset}" for number, offset in partitions.items())])
        for topic, partitions in position.items()
    )
