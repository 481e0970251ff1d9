"""The entry point: help, exit codes, one line per error, nothing slow at start."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

import penstock
from penstock.cli import main, output
from penstock.config import ServeSettings
from penstock.errors import (
    ConflictError,
    DamagedLogError,
    DiskFullError,
    MemoryFullError,
    NotFoundError,
    PenstockError,
    UnavailableError,
    UsageError,
)

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "command-line.md"
CLOSED = "127.0.0.1:1"  # nobody listens there, and nobody else may


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its full name, as typer built it."""

    def walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        children = getattr(command, "commands", {})
        if not children:
            yield name, command
        for child_name, child in children.items():
            yield from walk(f"{name} {child_name}".strip(), child)

    yield from walk("", typer.main.get_command(main.app))


COMMANDS = dict(commands())


def test_the_commands_are_there() -> None:
    topics = {f"topics {verb}" for verb in ("list", "create", "delete", "describe", "configure")}
    assert {"serve", "produce", "consume", "version"} | topics <= COMMANDS.keys()


def test_version_as_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {penstock.__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*name.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: penstock {name} ")
    if name != "version":
        assert f"  penstock {name}" in text.partition("Examples:")[2] or "| penstock" in text
    for parameter in COMMANDS[name].params:
        assert getattr(parameter, "help", None), parameter.name


@pytest.mark.parametrize("name", COMMANDS)
def test_reference_has_every_command_and_option(name: str) -> None:
    section = re.search(
        rf"^##+ `penstock {name}`\n(.*?)(?=^##+ `|\Z)", REFERENCE.read_text(), re.M | re.S
    )
    assert section, f"{REFERENCE.name} has no heading for `penstock {name}`"
    for parameter in COMMANDS[name].params:
        for option in parameter.opts:
            if option.startswith("--") and option != "--help":
                assert f"`{option}" in section[1], f"{option} of penstock {name} is not described"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PenstockError, 1),
        (UsageError, 2),
        (NotFoundError, 3),
        (ConflictError, 5),
        (UnavailableError, 6),
        (DamagedLogError, 7),
        (DiskFullError, 1),
        (MemoryFullError, 1),
    ],
)
def test_error_becomes_a_line_and_an_exit_code(
    error: type[PenstockError],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_bootstrap: str) -> None:
        raise error("cannot list topics", "it is broken", "mend it")

    monkeypatch.setattr("penstock.client.topics.list_topics", fail)
    assert main.run(["topics", "list"]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "error: cannot list topics: it is broken; mend it\n"


@pytest.mark.parametrize("args", [["--debug", "topics", "list"], ["topics", "list", "--debug"]])
def test_debug_shows_the_traceback(
    args: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_bootstrap: str) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("penstock.client.topics.list_topics", fail)
    monkeypatch.setattr(main, "_log_to_stderr", lambda: None)
    assert main.run(args) == 1
    error = capsys.readouterr().err
    assert error.startswith("Traceback")
    assert error.endswith("error: unexpected ZeroDivisionError: oh; --debug shows where\n")


def test_unexpected_error_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_bootstrap: str) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("penstock.client.topics.list_topics", fail)
    assert main.run(["topics", "list"]) == 1
    expected = "error: unexpected ZeroDivisionError: oh; --debug shows where\n"
    assert capsys.readouterr().err == expected


def test_interrupt_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_bootstrap: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.client.topics.list_topics", interrupt)
    assert main.run(["topics", "list"]) == 130


def test_closed_output_is_141_and_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def closed(_text: str) -> None:
        raise output.OutputClosedError

    monkeypatch.setattr(output, "emit", closed)
    monkeypatch.setattr(output, "abandon", lambda: None)
    assert main.run(["version"]) == 141
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_streams_may_be_closed(closed: str) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m penstock version {closed}"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("penstock") is (">&-" not in closed.replace("2>&-", ""))


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["produce", "t", "--timeout", "nan"], 2, "nan is not a number of seconds"),
        (["produce", "t", "--timeout", "inf"], 2, "not in the range 1.0<=x<=86400.0"),
        (["nonsense"], 2, "No such command 'nonsense'"),
        (["topics", "lst"], 2, "Did you mean 'list'?"),
        (["serve"], 2, "--data"),
        (["serve", "--data", "d", "--kafka", "9092"], 2, "it has no host; write 127.0.0.1:9092"),
        (["serve", "--data", "d", "--kafka", "0.0.0.0:9092"], 2, "add --insecure"),
        (["serve", "--data", "d", "--advertise", "me:0"], 2, "cannot advertise me:0"),
        (
            ["serve", "--data", "d", "--memory-topics", "much"],
            2,
            "write 512MiB, 2GiB, or the bytes",
        ),
        (["topics", "list", "-b", "here"], 2, "write here:9092"),
        (["topics", "list", "-b", CLOSED], 6, f"cannot reach {CLOSED}: connection refused"),
        (["topics", "create", "x", "--config", "a"], 2, "it has no '='; write NAME=VALUE"),
        (["topics", "create", "x", "--config", "=a"], 2, "it has no name; write NAME=VALUE"),
        (["topics", "configure", "x"], 2, "there is nothing to change"),
        (
            ["topics", "configure", "x", "--set", "a=1", "--unset", "a"],
            2,
            "a is to be set and unset",
        ),
        (["topics", "delete", "x"], 2, "it cannot be undone"),
        (["produce", "x", "--json", "-k", ","], 2, "use one of the two"),
        (["produce", "x", "-k", ""], 2, "the key separator is empty"),
        (["produce", "x", "-H", "a"], 2, "cannot read --header 'a'"),
        (["produce", "x", "--compression", "rar"], 2, "rar"),
        (["produce", "x", "--file", "/nowhere/at/all"], 2, "/nowhere/at/all"),
        (["produce", "x", "-b", CLOSED], 6, "connection refused"),
        (["consume", "x", "--from", "noon"], 2, "cannot read --from 'noon'"),
        (["consume", "x", "--json", "--print-key"], 2, "use one of the two"),
        (["consume", "x", "--max", "-1"], 2, "--max"),
        (["consume", "x", "-b", CLOSED], 6, "connection refused"),
    ],
)
def test_what_cannot_be_done_is_explained(
    args: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(args) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert "Traceback" not in printed.err


def test_nobody_on_the_default_address_says_how_to_start_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.delenv("PENSTOCK_BOOTSTRAP", raising=False)
    monkeypatch.setattr("socket.create_connection", refuse)
    assert main.run(["topics", "list"]) == 6
    assert capsys.readouterr().err == (
        "error: cannot reach 127.0.0.1:9092: connection refused; start a broker with "
        "`penstock serve --data DIR`, or name another with --bootstrap\n"
    )


def test_serve_passes_its_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[ServeSettings] = []
    server = ModuleType("penstock.server.app")
    monkeypatch.setattr(server, "serve", lambda given, _say: seen.append(given), raising=False)
    monkeypatch.setitem(sys.modules, server.__name__, server)
    monkeypatch.setenv("PENSTOCK_ADVERTISE", "logs.example.org:9092")
    monkeypatch.setenv("PENSTOCK_MEMORY_TOPICS", "3MiB")
    args = ["serve", "--data", str(tmp_path), "--kafka", "[::]:0", "--insecure"]
    assert main.run(args) == 0
    (settings,) = seen
    assert settings.data == tmp_path
    assert str(settings.kafka) == "[::]:0"
    assert str(settings.advertise) == "logs.example.org:9092"
    assert settings.insecure
    assert settings.memory_topics == 3 * 2**20


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"penstock {penstock.__version__}"
    assert lines[1].startswith("python 3.")
    assert lines[2] in ("modules compiled", "modules pure Python")
    assert main.run(["version", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["penstock"] == penstock.__version__
    assert f"modules {facts['modules']}" == lines[2]


@pytest.mark.parametrize("command", [[], ["serve"], ["consume"], ["topics", "create"]])
def test_help_imports_nothing_slow(command: list[str]) -> None:
    """The modules that cost the most; a stopwatch would fail on a busy machine."""
    slow = ("kafka", "rich", "asyncio", "uvloop", "logging", "cramjam", "pydantic", "pyspark")
    code = (
        f"import sys; from penstock.cli.main import run; code = run({[*command, '--help']!r}); "
        f"print(sorted(set(sys.modules) & set({slow!r})), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: penstock")
    assert done.stderr == "[]\n"


def test_completion_can_be_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--help"]) == 0
    assert "--install-completion" in capsys.readouterr().out
