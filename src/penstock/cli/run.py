"""`penstock run`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli import output
from penstock.cli.options import DEFAULT_BOOTSTRAP, Bootstrap
from penstock.cli.pipeline_options import Folder, root_folder
from penstock.errors import ConflictError, NotFoundError, UsageError

if TYPE_CHECKING:
    from penstock.pipelines.folder import PipelineFolder
    from penstock.pipelines.supervisor import Program
    from penstock.pipelines.terms import Bound

EXAMPLES: Final = (
    "\b\n"
    "Examples:\n"
    "  penstock run shop.py\n"
    "  penstock run shop.py -- --currency EUR                    arguments of the file\n"
    "  penstock run shop.py --until now                          what is there, then end\n"
    "  penstock run shop.py --name may --from 2026-05-01 --until 2026-06-01\n"
    "  penstock run shop.py -b kafka:9092 --master spark://cluster:7077 \\\n"
    "      --checkpoints s3://shop/checkpoints                   on a cluster"
)
_RANGE: Final = (
    'write start, now, a time such as 2026-03-01T12:00, 10m or 2h for that long ago, or {"topic": '
    '{"0": 42}} for offsets'
)


def run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A Python file that starts queries.")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- ARGUMENT...]", help="What the file gets in sys.argv."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The pipeline's.  [default: the file's]")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    master: Annotated[
        str,
        typer.Option(
            metavar="URL",
            envvar="PENSTOCK_MASTER",
            help="Where Spark runs: local[*], or a cluster such as spark://HOST:7077.",
        ),
    ] = "local[*]",
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="WHERE", help="Read from here; only for a new pipeline."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="WHERE", help="Read up to here, then end: now, a time, or offsets."),
    ] = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where checkpoints go, under its name; on a cluster a place all machines see.  "
            "[default: in the pipeline's folder]",
        ),
    ] = None,
    folder: Folder = None,
) -> None:
    """Run a file that uses penstock.spark, and keep it running.

    A pipeline that crashes, or loses its broker or Spark, is started again, after a second at first
    and a minute at most. One whose own code is wrong is given up, with the error. SIGTERM or Ctrl-C
    ends it after the batch it is at; a second one kills it.
    """
    from penstock.files import OsFiles  # noqa: PLC0415 -- keeps --help fast
    from penstock.pipelines.folder import PipelineFolder  # noqa: PLC0415
    from penstock.pipelines.supervisor import Program  # noqa: PLC0415
    from penstock.pipelines.terms import Terms  # noqa: PLC0415

    if not file.is_file():
        raise NotFoundError(f"cannot run {file}", "there is no such file")
    kept = PipelineFolder(OsFiles(), root_folder(folder), name or file.stem)
    terms = Terms(
        bootstrap,
        master,
        f"{checkpoints.rstrip('/')}/{kept.name}" if checkpoints else str(kept.checkpoints),
        parse_bound("--from", start),
        parse_bound("--until", until),
    )
    supervise(kept, Program(file.resolve(), arguments or [], terms))


def supervise(folder: PipelineFolder, program: Program) -> None:
    """Run a pipeline in the foreground until it ends.

    Raises:
        ConflictError: it runs already, it has begun elsewhere than --from says, or it is on its way
            back to a savepoint.
        PipelineError: its own code is wrong.
    """
    import os  # noqa: PLC0415 -- keeps --help fast
    import signal  # noqa: PLC0415

    from penstock.clock import SystemClock  # noqa: PLC0415
    from penstock.pipelines.java import check_java  # noqa: PLC0415
    from penstock.pipelines.supervisor import Supervisor  # noqa: PLC0415

    check_java(os.environ)
    operation = f"cannot run {program.file.name}"
    with folder.locked(operation) as lock:
        folder.check_can_run(operation)
        if program.terms.starting is not None and folder.queries():
            cause = f"the pipeline {folder.name} has begun and goes on where it stopped"
            raise ConflictError(operation, cause, "leave out --from, or choose another --name")
        supervisor = Supervisor(
            folder,
            lock.descriptor,
            program,
            clock=SystemClock(),
            say=output.message,
            environ=os.environ,
        )
        phase = supervisor.run()
    with contextlib.suppress(BrokenPipeError):
        output.message(f"{folder.name} is {phase}")
    if supervisor.signalled == signal.SIGINT:
        raise KeyboardInterrupt


def parse_bound(option: str, text: str | None) -> Bound | None:
    """Read one end of a range.

    Raises:
        UsageError: text is neither a word, a time nor offsets.
    """
    import json  # noqa: PLC0415 -- keeps --help fast
    from datetime import datetime  # noqa: PLC0415

    from penstock.cli.position import parse_start  # noqa: PLC0415
    from penstock.client.consume import Origin  # noqa: PLC0415
    from penstock.pipelines.terms import Bound  # noqa: PLC0415

    if text is None:
        return None
    operation = f"cannot read {option} '{text}'"
    if text.startswith("{"):
        try:
            json.loads(text)
        except ValueError as error:
            raise UsageError(operation, f"it is no JSON: {error}", _RANGE) from None
        return Bound.at_offsets(text)
    if text in ("now", "end"):
        return Bound.at_offsets("latest")
    try:
        found = parse_start(text, datetime.now().astimezone())
    except UsageError:
        raise UsageError(operation, "it is no place in topics", _RANGE) from None
    if found.origin is Origin.START:
        return Bound.at_offsets("earliest")
    if found.origin is not Origin.TIME:
        raise UsageError(operation, "a number alone names no partition", _RANGE)
    return Bound.at_time(found.value)
