"""A PostgreSQL of its own for a test: a new folder, a free port, loopback only, gone afterwards.

Needs the server's programs (Debian: apt-get install postgresql), and neither a service nor rights.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_FOLDERS = "/usr/lib/postgresql/*/bin"
_SECONDS_MAX = 60.0


def programs() -> Path | None:
    """The folder with initdb and postgres, of the newest version there is."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    found = sorted(Path("/").glob(_FOLDERS.lstrip("/")), key=lambda one: float(one.parent.name))
    return found[-1] if found else None


class PostgresServer:
    """A server that takes connections in a with block, and can be killed and started again in it.

    Args:
        port: None: any that is free.
    """

    def __init__(self, port: int | None = None) -> None:
        self._port = _free_port() if port is None else port
        self.url = f"postgresql://penstock@127.0.0.1:{self._port}/postgres"
        self.connection = f"host=127.0.0.1 port={self._port} user=penstock dbname=postgres"

    def __enter__(self) -> PostgresServer:
        folder = programs()
        assert folder is not None, (
            "PostgreSQL is not installed (Debian: apt-get install postgresql)"
        )
        self._programs = folder
        self._home = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        user = _user()
        if user is not None:
            os.chown(self._home, *user)
        self._options = {"user": user[0], "group": user[1]} if user else {}
        try:
            subprocess.run(
                [
                    *(folder / "initdb", "-D", self._home / "data"),
                    *("-A", "trust", "-U", "penstock", "--no-sync"),
                ],
                check=True,
                capture_output=True,
                cwd=self._home,
                **self._options,  # type: ignore[call-overload]
            )
            self.start()
        except BaseException:
            shutil.rmtree(self._home, ignore_errors=True)
            raise
        return self

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        until = time.monotonic() + _SECONDS_MAX
        while not self._started():
            # After a kill: those who served connections have not all noticed yet.
            assert time.monotonic() < until, f"PostgreSQL ended:\n{self._log.read_text()}"
            time.sleep(0.1)

    def kill(self) -> None:
        """As a crash: nothing is stopped in good order."""
        self._server.kill()
        self._server.wait()

    def __exit__(self, *error: object) -> None:
        try:
            if self._server.poll() is None:
                self._server.send_signal(signal.SIGINT)  # without waiting for those connected
                self._server.wait(_SECONDS_MAX)
        finally:
            shutil.rmtree(self._home, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self._home / "log"

    def _started(self) -> bool:
        with self._log.open("ab") as log:
            self._server = subprocess.Popen(
                [
                    *(self._programs / "postgres", "-D", self._home / "data"),
                    *("-p", str(self._port), "-c", "listen_addresses=127.0.0.1"),
                    *("-c", f"unix_socket_directories={self._home}"),
                    *("-c", "fsync=off"),  # the machine itself does not fail
                ],
                stdout=log,
                stderr=log,
                cwd=self._home,
                **self._options,  # type: ignore[call-overload]
            )
        return _is_ready(self._programs, self._port, self._server, self._log)


@contextlib.contextmanager
def running_postgres() -> Iterator[str]:
    """A server that takes connections; the text to connect with."""
    with PostgresServer() as server:
        yield server.connection


def _user() -> tuple[int, int] | None:
    """PostgreSQL refuses to run as root; Debian's package brings a user for it."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return entry.pw_uid, entry.pw_gid
    raise AssertionError("there is no user that PostgreSQL could run as")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _is_ready(folder: Path, port: int, server: subprocess.Popen[bytes], log: Path) -> bool:
    """Wait until it takes connections; False if it ended."""
    until = time.monotonic() + _SECONDS_MAX
    command = [str(folder / "pg_isready"), "-h", "127.0.0.1", "-p", str(port), "-q"]
    while subprocess.run(command, check=False).returncode:
        if server.poll() is not None:
            return False
        assert time.monotonic() < until, f"PostgreSQL does not answer:\n{log.read_text()}"
        time.sleep(0.1)
    return True
