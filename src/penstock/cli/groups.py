"""`penstock groups`: list, describe, reset, copy, delete."""

from __future__ import annotations

from pathlib import Path
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
    wants_json,
)
from penstock.clock import SystemClock
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.client.group_lag import GroupDescription, Standing
    from penstock.client.group_reset import Scope, Target

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List consumer groups, show their lag, move and delete them.",
)

Name = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:P,...]",
        help="Only this topic, or these partitions of it; repeatable.",
    ),
]
Execute = Annotated[
    bool, typer.Option("--execute", help="Do it; without this only the plan is shown.")
]
Export = Annotated[
    Path | None,
    typer.Option(
        "--export",
        metavar="FILE",
        help="Write where the group stands now; with --execute a file is written anyway.",
    ),
]

_LIST_EXAMPLES: Final = "\b\nExamples:\n  penstock groups list\n  penstock groups list -o json"
_DESCRIBE_EXAMPLES: Final = (
    "\b\nExamples:\n  penstock groups describe billing\n  penstock groups describe billing --json"
)
_RESET_EXAMPLES: Final = (
    "\b\n"
    "Examples:\n"
    "  penstock groups reset billing --to-earliest\n"
    "  penstock groups reset billing --by-duration 1h30m --topic orders --execute\n"
    "  penstock groups reset billing --to-offset 42 --topic orders:0 --execute\n"
    "  penstock groups reset billing --to-current --export billing.csv\n"
    "  penstock groups reset billing --from-file billing.csv --execute"
)
_COPY_EXAMPLES: Final = (
    "\b\n"
    "Examples:\n"
    "  penstock groups copy billing billing-2\n"
    "  penstock groups copy billing audit --topic orders --execute"
)
# For the kinds that are known here; groups of Kafka Streams keep something else.
_NOTHING: Final = dict.fromkeys(
    ("classic", "consumer", "share"), "it has committed nothing and reads nothing"
)
_DELETE_EXAMPLES: Final = (
    "\b\nExamples:\n  penstock groups delete billing\n  penstock groups delete billing audit --yes"
)


@app.command("list", epilog=_LIST_EXAMPLES)
def list_groups(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Output = Format.TABLE,
    json: Json = False,
) -> None:
    """List the consumer groups by name."""
    from penstock.client import groups  # noqa: PLC0415 -- keeps --help fast

    found = groups.list_groups(bootstrap)
    if wants_json(output_format, json):
        output.emit_json(
            [
                {"name": one.name, "type": one.type, "state": one.state, "members": one.members}
                for one in found
            ]
        )
        return
    output.emit_table(
        {"GROUP": "<", "TYPE": "<", "STATE": "<", "MEMBERS": ">"},
        [(one.name, one.type, one.state or None, one.members) for one in found],
    )


@app.command("describe", epilog=_DESCRIBE_EXAMPLES)
def describe(
    name: Name,
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Output = Format.TABLE,
    json: Json = False,
) -> None:
    """Show where a group stands, its lag, and who reads what.

    The lag is given in records, in bytes as far as the broker tells, and in time: for how long the
    next record has been waiting. TIME LEFT is how soon retention may delete that record.
    """
    from penstock.client.group_lag import describe_group  # noqa: PLC0415 -- keeps --help fast

    found = describe_group(bootstrap, name)
    now = SystemClock().wall_ms()
    if wants_json(output_format, json):
        output.emit_json(_description_json(found, now))
    else:
        _emit_description(found, now)
    for standing in found.standings:
        if warning := _warning(standing):
            output.warning(f"group {name} {warning}")


@app.command("reset", epilog=_RESET_EXAMPLES)
def reset(
    name: Name,
    *,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the oldest record there is.")
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="To the end: only what is written from now on.")
    ] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="Where it stands; into what is retained.")
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, metavar="N", help="To this offset.")
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option("--shift-by", metavar="N", help="On by N records; back if negative."),
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time", metavar="ISO8601", help="To the first record since then; Z for UTC."
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(
            "--by-duration", metavar="TIME", help="To the first record of the last 90s, 1h30m, 7d."
        ),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", metavar="FILE", help="To the offsets that --export wrote."),
    ] = None,
    topic: Topics = None,
    execute: Execute = False,
    export: Export = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Output = Format.TABLE,
    json: Json = False,
) -> None:
    """Move a group that has no members.

    Shows the plan and changes nothing without --execute. With it, the offsets that were committed
    are first written to a file, and the command that goes back to them is shown.
    """
    from penstock.cli import group_plan  # noqa: PLC0415 -- keeps --help fast
    from penstock.client.group_reset import plan_reset  # noqa: PLC0415

    target = _target(
        name,
        {
            "--to-earliest": to_earliest or None,
            "--to-latest": to_latest or None,
            "--to-current": to_current or None,
            "--to-offset": to_offset,
            "--shift-by": shift_by,
            "--to-time": to_time,
            "--by-duration": by_duration,
            "--from-file": from_file,
        },
    )
    plan = plan_reset(bootstrap, name, target, _scopes(topic or []))
    as_json = wants_json(output_format, json)
    group_plan.carry_out(bootstrap, plan, execute=execute, export=export, as_json=as_json)


@app.command("copy", epilog=_COPY_EXAMPLES)
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The group that stands there.")],
    name: Annotated[str, typer.Argument(metavar="TO", help="The group that is to start there.")],
    *,
    topic: Topics = None,
    execute: Execute = False,
    export: Export = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Output = Format.TABLE,
    json: Json = False,
) -> None:
    """Let a group start where another one stands.

    Shows the plan and changes nothing without --execute. Only the second group must have no members.
    """
    from penstock.cli import group_plan  # noqa: PLC0415 -- keeps --help fast
    from penstock.client.group_reset import plan_copy  # noqa: PLC0415

    plan = plan_copy(bootstrap, source, name, _scopes(topic or []))
    as_json = wants_json(output_format, json)
    group_plan.carry_out(bootstrap, plan, execute=execute, export=export, as_json=as_json)


@app.command("delete", epilog=_DELETE_EXAMPLES)
def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Names of the groups.")],
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete groups without members, with the offsets that they committed.

    Asks first; where there is no terminal to ask on, it needs --yes.
    """
    from penstock.client import groups  # noqa: PLC0415 -- keeps --help fast

    if not yes:
        check_can_ask(f"cannot delete {', '.join(names)}", "the offsets would be lost")
        for name in names:
            typer.confirm(f"delete group {name} and its offsets?", abort=True, err=True)
    groups.delete_groups(bootstrap, names)
    output.message(f"deleted {', '.join(names)}")


# -- what was asked for


def _target(name: str, options: dict[str, Any]) -> Target:
    """The target that one option gives; there must be one and no other."""
    from penstock.cli.offsets_file import read_offsets  # noqa: PLC0415 -- keeps --help fast
    from penstock.cli.position import parse_duration, parse_time  # noqa: PLC0415
    from penstock.client.group_reset import Aim, Target  # noqa: PLC0415

    given = {option: value for option, value in options.items() if value is not None}
    if len(given) != 1:
        cause = f"{' and '.join(given)} exclude each other" if given else "no target was given"
        raise UsageError(f"cannot reset group {name}", cause, f"use one of {', '.join(options)}")
    ((option, value),) = given.items()
    match option:
        case "--to-offset":
            return Target(Aim.OFFSET, value)
        case "--shift-by":
            return Target(Aim.SHIFT, value)
        case "--to-time":
            return Target(Aim.TIME, parse_time(option, value))
        case "--by-duration":
            now = SystemClock().wall_ms()
            return Target(Aim.TIME, max(0, now - parse_duration(option, value)))
        case "--from-file":
            return Target(Aim.LISTED, listed=read_offsets(value))
    return Target(Aim(option.removeprefix("--to-")))


def _scopes(texts: list[str]) -> list[Scope]:
    from penstock.client.group_reset import Scope  # noqa: PLC0415 -- keeps --help fast

    scopes = []
    for text in texts:
        topic, colon, partitions = text.partition(":")
        try:
            numbers = frozenset(int(one) for one in partitions.split(",")) if colon else frozenset()
        except ValueError as error:
            remedy = "write TOPIC, TOPIC:0 or TOPIC:0,1"
            cause = f"'{partitions}' is no list of partitions"
            raise UsageError(f"cannot read --topic '{text}'", cause, remedy) from error
        scopes.append(Scope(topic, numbers))
    return scopes


# -- descriptions


def _emit_description(found: GroupDescription, now: int) -> None:
    group = found.group
    output.emit(f"group     {group.summary.name}")
    output.emit(f"type      {group.summary.type}")
    output.emit(f"state     {group.summary.state}")
    output.emit(f"protocol  {group.protocol or '-'}")
    members = "unknown" if group.summary.members is None else group.summary.members
    output.emit(f"members   {members}")
    output.emit("")
    if not found.standings:
        output.emit(_NOTHING.get(group.summary.type, "where it stands cannot be shown here"))
        return
    stands = "START" if group.summary.type == "share" else "COMMITTED"
    columns = {"TOPIC": "<", "PARTITION": ">", stands: ">", "END": ">", "LAG": ">"}
    columns |= {"BYTES": ">", "TIME": ">", "TIME LEFT": ">", "MEMBER": "<"}
    nobody = "unknown" if group.summary.members is None else None
    output.emit_table(columns, [_row(one, nobody, now) for one in found.standings])


def _row(one: Standing, nobody: str | None, now: int) -> tuple[object, ...]:
    none = one.committed is None
    waited = one.lag_ms(now)
    return (
        one.topic,
        one.partition,
        "none committed" if none else one.committed,
        one.end,
        None if none else _or_unknown(one.lag),
        None if none else _bytes_text(one),
        None if none else "unknown" if waited is None else output.format_duration(waited),
        _left_text(one, now),
        one.owner or nobody,
    )


def _or_unknown(value: int | None) -> object:
    return "unknown" if value is None else value


def _bytes_text(one: Standing) -> str:
    if one.lag_bytes is not None:
        return output.format_bytes(one.lag_bytes)
    if one.lag_bytes_max is not None:
        return f"at most {output.format_bytes(one.lag_bytes_max)}"
    return "unknown"


def _left_text(one: Standing, now: int) -> str | None:
    if not one.lag:
        return None
    if one.retention.ms is None:
        return "by size only" if one.retention.by_size else "unlimited"
    left = one.left_ms(now)
    if left is None:
        return "unknown"
    return output.format_duration(left) if left else "any moment"


def _warning(one: Standing) -> str:
    where = f"{one.topic} partition {one.partition}"
    if one.end is None:
        return f"has an offset for {where}, which does not exist or is out of service"
    if one.lost:
        lost = output.format_count(one.lost, "record")
        was = "was" if one.lost == 1 else "were"
        return (
            f"stands at offset {one.committed} of {where}, below the retained start "
            f"{one.start}: {lost} {was} deleted before it could read them"
        )
    if one.beyond:
        return (
            f"stands at offset {one.committed} of {where}, which ends at {one.end}: the topic was "
            "created anew, or lost records"
        )
    return ""


def _description_json(found: GroupDescription, now: int) -> dict[str, Any]:
    summary = found.group.summary
    return {
        "name": summary.name,
        "type": summary.type,
        "state": summary.state,
        "protocol": found.group.protocol or None,
        "member_count": summary.members,
        "members": [
            {
                "id": member.id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
            }
            for member in found.group.members
        ],
        "partitions": [_standing_json(standing, now) for standing in found.standings],
    }


def _standing_json(one: Standing, now: int) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "committed": one.committed,
        "start": one.start,
        "end": one.end,
        "lag": one.lag,
        "lag_bytes": one.lag_bytes,
        "lag_bytes_at_most": one.lag_bytes_max,
        "lag_ms": one.lag_ms(now),
        "lost": one.lost,
        "retention_ms": one.retention.ms,
        "retention_left_ms": one.left_ms(now),
        "member": one.owner.id if one.owner else None,
    }
