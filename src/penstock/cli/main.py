"""The entry point: builds the commands, runs one, turns what went wrong into an exit code.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 3 not found, 5 conflict with what is
there, 6 the broker does not answer, 7 stored data is damaged, 130 interrupted, 141 nobody reads the
output.
"""

from __future__ import annotations

import platform
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

import penstock
from penstock.cli import (
    consume,
    groups,
    log,
    output,
    pipelines,
    produce,
    serve,
    topics,
    transactions,
    views,
)
from penstock.cli import run as run_pipeline
from penstock.cli.options import Format, Json, Output, wants_json
from penstock.errors import (
    ConflictError,
    DamagedLogError,
    NotFoundError,
    PenstockError,
    UnavailableError,
    UsageError,
)

FAILURE: Final = 1
INTERRUPTED: Final = 130
OUTPUT_CLOSED: Final = 141
_EXIT_CODES: Final[dict[type[PenstockError], int]] = {
    UsageError: 2,
    NotFoundError: 3,
    ConflictError: 5,
    UnavailableError: 6,
    DamagedLogError: 7,
}

_EPILOG: Final = (
    "\b\n"
    "Start a broker, write to it, read from it:\n"
    "  penstock serve --data ./data\n"
    "  echo hello | penstock produce greetings --create\n"
    "  penstock consume greetings\n"
    "\n\b\n"
    "Exit codes: 0 done, 1 failed, 2 wrong command line, 3 not found, 5 conflict,\n"
    "6 broker does not answer, 7 stored data is damaged, 130 interrupted."
)
_HELP_OPTIONS: Final = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="penstock",
    no_args_is_help=True,
    # Rich help costs 50 ms of the 150 that --help may take, and its boxes do not survive a pipe.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_HELP_OPTIONS,
)
app.command("serve", epilog=serve.EXAMPLES)(serve.serve)
app.add_typer(topics.app, name="topics")
app.command("produce", epilog=produce.EXAMPLES)(produce.produce)
app.command("consume", epilog=consume.EXAMPLES)(consume.consume)
app.add_typer(groups.app, name="groups")
app.add_typer(transactions.app, name="transactions")
app.command("run", epilog=run_pipeline.EXAMPLES)(run_pipeline.run)
app.add_typer(pipelines.app, name="pipelines")
app.add_typer(views.app, name="views")
app.add_typer(log.app, name="log")


def _show_version(wanted: bool) -> None:
    if wanted:
        output.emit(f"penstock {penstock.__version__}")
        raise typer.Exit


@app.callback(epilog=_EPILOG)
def root(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks and logs; works after a command too.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """A durable, partitioned event log that Kafka clients use unchanged."""


@app.command()
def version(output_format: Output = Format.TABLE, json: Json = False) -> None:
    """Show the version, and whether compiled modules run."""
    from penstock.record import compiled  # noqa: PLC0415 -- keeps --help fast

    modules = "compiled" if compiled() else "pure Python"
    if wants_json(output_format, json):
        facts = {"penstock": penstock.__version__, "python": platform.python_version()}
        output.emit_json(facts | {"modules": modules})
        return
    output.emit(f"penstock {penstock.__version__}")
    output.emit(f"python {platform.python_version()} ({platform.python_implementation()})")
    output.emit(f"modules {modules}")


def exit_code(error: PenstockError) -> int:
    """The exit code that the kind of an error stands for."""
    for kind in type(error).__mro__:
        if kind in _EXIT_CODES:
            return _EXIT_CODES[kind]
    return FAILURE


def run(args: Sequence[str]) -> int:
    """Run one command; the exit code. Whatever goes wrong ends as one line on standard error."""
    debug = "--debug" in args
    try:
        if debug:
            _log_to_stderr()
        code = _run_command([argument for argument in args if argument != "--debug"])
        output.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except output.OutputClosedError:
        output.abandon()
        return OUTPUT_CLOSED
    except Exception as error:  # the last resort, by design: users get one line and an exit code
        if debug:
            traceback.print_exc()
        return _report(error)
    return code


def main() -> None:
    """Run the command line of this process."""
    output.open_closed_streams()
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:
        output.abandon()
    sys.exit(code)


def _run_command(args: list[str]) -> int:
    # Straight to the command that is named: on its way there typer would handle the options of each
    # group, none of which is left, and import pydantic for that, which takes 80 ms.
    name = "penstock"
    command: Any = typer.main.get_command(app)
    while args and args[0] in getattr(command, "commands", {}):
        name, command = f"{name} {args[0]}", command.commands[args[0]]
        args = args[1:]
    try:
        command(args, prog_name=name, **_HELP_OPTIONS)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else FAILURE
    return 0


def _report(error: Exception) -> int:
    if isinstance(error, PenstockError):
        output.error(str(error))
        return exit_code(error)
    output.error(f"unexpected {type(error).__name__}: {error}; --debug shows where")
    return FAILURE


def _log_to_stderr() -> None:
    import logging  # noqa: PLC0415 -- keeps --help fast

    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
