"""Showing what would be done to a group, doing it, and the way back."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.cli import output
from penstock.cli.offsets_file import write_offsets
from penstock.client import group_reset
from penstock.client.group_reset import Move, Plan


def carry_out(
    bootstrap: str, plan: Plan, *, execute: bool, export: Path | None, as_json: bool
) -> None:
    """Show the plan and, if it is to be executed, do it; what was there before is written first.

    Raises:
        PenstockError: the file could not be written, or the group not be moved.
    """
    changes = any(one.before != one.after for one in plan.moves)
    path = export
    if path is None and execute and changes:
        path = Path(_undo_name(plan.group, datetime.now(UTC)))
    if not as_json:
        _emit_plan(plan)
    if path is not None:
        write_offsets(path, {(one.topic, one.partition): one.before for one in plan.moves})
    if execute and changes:
        group_reset.execute(bootstrap, plan)
    undo = _undo_command(bootstrap, plan.group, path) if path is not None else None
    if as_json:
        output.emit_json(_plan_json(plan, executed=execute, path=path, undo=undo))
    _tell(plan, execute=execute, changes=changes, path=path, undo=undo)


def _undo_name(group: str, now: datetime) -> str:
    safe = re.sub(r"[^\w.-]", "_", group, flags=re.ASCII)
    return f"undo-{safe}-{now:%Y%m%dT%H%M%S.%f}.csv"


def _undo_command(bootstrap: str, group: str, path: Path) -> str:
    command = ["penstock", "groups", "reset", group, "--from-file", str(path.absolute())]
    return shlex.join([*command, "--bootstrap", bootstrap, "--execute"])


def _tell(plan: Plan, *, execute: bool, changes: bool, path: Path | None, undo: str | None) -> None:
    for one in plan.moves:
        if one.asked != one.after:
            where = f"{one.topic} partition {one.partition}"
            output.warning(f"{where} has no offset {one.asked}: {one.after} is the nearest")
    if path is not None:
        output.message(f"where it stood before is in {path}")
    if not changes:
        output.message(f"group {plan.group} stands there already: nothing to change")
    elif execute:
        output.message(f"moved group {plan.group}; undo it with:\n  {undo}")
    else:
        output.message("nothing was changed; add --execute to do it")


def _emit_plan(plan: Plan) -> None:
    columns = {"TOPIC": "<", "PARTITION": ">", "FROM": ">", "TO": ">", "DIFFERENCE": ">"}
    output.emit_table(columns, [_row(one) for one in plan.moves])


def _row(one: Move) -> tuple[object, ...]:
    difference = None if one.difference is None else f"{one.difference:+d}"
    before, after = (
        "none committed" if offset is None else offset for offset in (one.before, one.after)
    )
    return one.topic, one.partition, before, after, difference


def _plan_json(
    plan: Plan, *, executed: bool, path: Path | None, undo: str | None
) -> dict[str, Any]:
    return {
        "group": plan.group,
        "executed": executed,
        "undo_file": str(path) if path is not None else None,
        "undo_command": undo,
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "from": one.before,
                "to": one.after,
                "difference": one.difference,
                "asked": one.asked,
            }
            for one in plan.moves
        ],
    }
