"""`penstock` commands against one broker, run in this process or as one of their own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from penstock.cli.main import run

PENSTOCK = (sys.executable, "-m", "penstock")


class Done(NamedTuple):
    """What became of a command."""

    code: int
    stdout: bytes
    stderr: str


class Commands:
    """Runs `penstock` against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.environment = {"PENSTOCK_BOOTSTRAP": bootstrap, "NO_COLOR": "1"}

    def start(self, *args: str, **options: Any) -> subprocess.Popen[bytes]:
        """A process of its own, for what is about processes: signals, pipes, time."""
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environment = os.environ | self.environment
        return subprocess.Popen([*PENSTOCK, *args], env=environment, **(pipes | options))

    def run(self, *args: str, data: bytes = b"") -> Done:
        """In this process, which saves the start: most of what a command costs."""
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        err = io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = run(args)
        buffer = out.detach()
        assert isinstance(buffer, io.BytesIO)
        return Done(code, buffer.getvalue(), err.getvalue())

    def ok(self, *args: str, data: bytes = b"") -> str:
        """What a command that must succeed printed."""
        done = self.run(*args, data=data)
        assert done.code == 0, done.stderr
        return done.stdout.decode()

    def refused(self, code: int, *args: str, data: bytes = b"") -> str:
        """What a command that must fail said; it prints no data."""
        done = self.run(*args, data=data)
        assert done.code == code, done.stderr
        assert done.stdout == b""
        return done.stderr

    def consumed(self, topic: str, *args: str) -> list[dict[str, Any]]:
        lines = self.ok("consume", topic, "--json", *args).splitlines()
        return [json.loads(line) for line in lines]
