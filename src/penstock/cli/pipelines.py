"""`penstock pipelines`: list, describe, stop, savepoint, restart-from."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli import output
from penstock.cli.options import Format, Json, Output, wants_json
from penstock.cli.pipeline_options import Folder, root_folder
from penstock.errors import ConflictError, UnavailableError

if TYPE_CHECKING:
    from penstock.pipelines.folder import Description, PipelineFolder

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look at pipelines that `penstock run` runs or ran, stop them, and take and use savepoints.",
)

_LIST_EXAMPLES: Final = "\b\nExamples:\n  penstock pipelines list\n  penstock pipelines list --json"
_DESCRIBE_EXAMPLES: Final = "\b\nExamples:\n  penstock pipelines describe shop"
_STOP_EXAMPLES: Final = "\b\nExamples:\n  penstock pipelines stop shop"
_SAVEPOINT_EXAMPLES: Final = "\b\nExamples:\n  penstock pipelines savepoint shop before-the-change"
_RESTART_EXAMPLES: Final = "\b\nExamples:\n  penstock pipelines restart-from shop before-the-change"
_LOOK_SECONDS: Final = 0.05

Name = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's.")]
Label = Annotated[str, typer.Argument(metavar="SAVEPOINT", help="The savepoint's.")]


@app.command("list", epilog=_LIST_EXAMPLES)
def list_pipelines(
    folder: Folder = None, output_format: Output = Format.TABLE, json: Json = False
) -> None:
    """List pipelines and what they are doing."""
    from penstock.files import OsFiles  # noqa: PLC0415 -- keeps --help fast
    from penstock.pipelines.folder import all_pipelines  # noqa: PLC0415

    found = all_pipelines(OsFiles(), root_folder(folder))
    if wants_json(output_format, json):
        output.emit_json([dataclasses.asdict(one) for one in found])
        return
    columns = {"PIPELINE": "<", "STATE": "<", "PID": ">", "RESTARTS": ">", "LAG": ">", "FILE": "<"}
    output.emit_table(columns, [_row(one) for one in found])


def _row(found: Description) -> list[object]:
    lags = [
        q.progress.lag for q in found.queries.values() if q.progress and q.progress.lag is not None
    ]
    facts = found.facts
    lag = f"{sum(lags):,}" if lags else None
    return [found.name, facts.phase, found.pid, facts.restarts, lag, facts.file]


@app.command(epilog=_DESCRIBE_EXAMPLES)
def describe(
    name: Name, folder: Folder = None, output_format: Output = Format.TABLE, json: Json = False
) -> None:
    """Show a pipeline, its queries and its savepoints."""
    from penstock.files import OsFiles  # noqa: PLC0415 -- keeps --help fast
    from penstock.pipelines.savepoints import savepoints  # noqa: PLC0415

    kept = _folder(folder, name)
    found, saved = kept.describe(), savepoints(OsFiles(), kept)
    if wants_json(output_format, json):
        facts = {**dataclasses.asdict(found), "folder": str(kept.path)}
        output.emit_json(facts | {"savepoints": [dataclasses.asdict(one) for one in saved]})
        return
    for line in _description(kept, found, [one.label for one in saved]):
        output.emit(line)


def _description(kept: PipelineFolder, found: Description, saved: list[str]) -> list[str]:
    from penstock.pipelines.metrics import moment, progress_line  # noqa: PLC0415

    facts = found.facts
    running = f" (process {found.pid})" if found.pid else ""
    lines = [
        f"{found.name} is {facts.phase}{running}, restarted {facts.restarts} times",
        f"  file        {' '.join([facts.file, *facts.arguments])}",
        f"  started     {moment(facts.started_ms)}",
        f"  bootstrap   {facts.bootstrap}",
        f"  master      {facts.master}",
        f"  folder      {kept.path}",
    ]
    if facts.error:
        lines.append(f"  error       {facts.error}")
    for name, query in found.queries.items():
        lines.append(f"  query       {progress_line(query.progress) if query.progress else name}")
        lines.append(f"  checkpoint  {query.checkpoint or 'unknown'}")
    return lines + [f"  savepoint   {label}" for label in saved]


@app.command(epilog=_STOP_EXAMPLES)
def stop(name: Name, folder: Folder = None) -> None:
    """Ask a running pipeline to end after the batch it is at, and wait until it has."""
    import time  # noqa: PLC0415 -- keeps --help fast

    from penstock.pipelines.supervisor import stop as ask  # noqa: PLC0415

    kept = _folder(folder, name)
    found = kept.describe()
    if found.pid is None:
        raise ConflictError(f"cannot stop {name}", f"it does not run; it is {found.facts.phase}")
    try:
        ask(found.pid)
    except ProcessLookupError:
        cause = f"its supervisor (process {found.pid}) is gone; it ends after the batch it is at"
        raise UnavailableError(f"cannot stop {name}", cause, "wait for it") from None
    while kept.supervisor() is not None:
        time.sleep(_LOOK_SECONDS)
    output.message(f"{name} is {kept.facts().phase}")


@app.command(epilog=_SAVEPOINT_EXAMPLES)
def savepoint(name: Name, label: Label, folder: Folder = None) -> None:
    """Copy the checkpoints of a stopped pipeline, with all its state, to come back to."""
    from penstock.clock import SystemClock  # noqa: PLC0415 -- keeps --help fast
    from penstock.files import OsFiles  # noqa: PLC0415
    from penstock.pipelines.savepoints import take  # noqa: PLC0415

    kept = _folder(folder, name)
    with kept.locked(f"cannot take a savepoint of {name}"):
        take(OsFiles(), kept, label, SystemClock().wall_ms())
    output.message(f"{kept.savepoints / label} is complete")


@app.command("restart-from", epilog=_RESTART_EXAMPLES)
def restart_from(name: Name, label: Label, folder: Folder = None) -> None:
    """Run a stopped pipeline from a savepoint, with the file, arguments and addresses it had.

    What was read after the savepoint is read and written again: sinks that replace by key end with the
    same rows, others have them twice unless they are new. Where the pipeline was is kept as a savepoint.
    """
    from penstock.cli.run import supervise  # noqa: PLC0415 -- keeps --help fast
    from penstock.clock import SystemClock  # noqa: PLC0415
    from penstock.files import OsFiles  # noqa: PLC0415
    from penstock.pipelines.savepoints import go_back  # noqa: PLC0415
    from penstock.pipelines.supervisor import Program  # noqa: PLC0415
    from penstock.pipelines.terms import Terms  # noqa: PLC0415

    kept = _folder(folder, name)
    facts = kept.facts()
    with kept.locked(f"cannot restart {name}"):
        renewed = go_back(OsFiles(), kept, label, SystemClock().wall_ms())
    for query in renewed:
        output.message(f"{query} goes back and has a new id: what follows is written again")
    terms = Terms(facts.bootstrap, facts.master, facts.checkpoints)
    supervise(kept, Program(Path(facts.file), facts.arguments, terms))


def _folder(root: Path | None, name: str) -> PipelineFolder:
    """The folder of a pipeline that has been run."""
    from penstock.files import OsFiles  # noqa: PLC0415 -- keeps --help fast
    from penstock.pipelines.folder import PipelineFolder  # noqa: PLC0415

    kept = PipelineFolder(OsFiles(), root_folder(root), name)
    kept.facts()
    return kept
