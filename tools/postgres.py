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


@contextlib.contextmanager
def running_postgres() -> Iterator[str]:
    """A server that takes connections; the text to connect with."""
    folder = programs()
    assert folder is not None, "PostgreSQL is not installed (Debian: apt-get install postgresql)"
    home = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
    user = _user()
    if user is not None:
        os.chown(home, *user)
    options = {"user": user[0], "group": user[1]} if user else {}
    data, port = home / "data", _free_port()
    try:
        subprocess.run(
            [folder / "initdb", "-D", data, "-A", "trust", "-U", "penstock", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=home,
            **options,  # type: ignore[call-overload]
        )
        with (home / "log").open("wb") as log:
            server = subprocess.Popen(
                [
                    *(folder / "postgres", "-D", data, "-p", str(port)),
                    *("-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={home}"),
                    *("-c", "fsync=off"),  # it is stopped in good order, and then forgotten
                ],
                stdout=log,
                stderr=log,
                cwd=home,
                **options,  # type: ignore[call-overload]
            )
        try:
            _wait_ready(folder, port, server, home / "log")
            yield f"host=127.0.0.1 port={port} user=penstock dbname=postgres"
        finally:
            server.send_signal(signal.SIGINT)  # without waiting for those who are connected
            server.wait(_SECONDS_MAX)
    finally:
        shutil.rmtree(home, ignore_errors=True)


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


def _wait_ready(folder: Path, port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _SECONDS_MAX
    command = [str(folder / "pg_isready"), "-h", "127.0.0.1", "-p", str(port), "-q"]
    while subprocess.run(command, check=False).returncode:
        assert server.poll() is None, f"PostgreSQL ended:\n{log.read_text()}"
        assert time.monotonic() < until, f"PostgreSQL does not answer:\n{log.read_text()}"
        time.sleep(0.1)
