"""Make sure that the clients which are no Python packages are there, for `make test` and `compat`.

`python -m tools.clients` looks for kcat, for Kafka's Java client with its tools, for Kafka Connect
and for Spark with its Kafka connector. Debian's package of kcat is installed where we may do that;
elsewhere the message says how to get it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tools import connect, kafka, spark
from tools.jars import PeerError

KCAT_ADVICE = (
    "'kcat' is not installed, and the client tests need it. "
    "Debian and Ubuntu: apt-get install kcat; macOS: brew install kcat; "
    "elsewhere: the package of your system, or build it from its sources (edenhill/kcat)."
)


class ClientError(Exception):
    """A client is missing and could not be installed; the message says what to do."""


def ensure_kcat() -> None:
    """Install kcat unless it is there."""
    if shutil.which("kcat"):
        return
    if not (shutil.which("apt-get") and os.geteuid() == 0):
        raise ClientError(KCAT_ADVICE)
    print("installing kcat with apt-get ...", file=sys.stderr, flush=True)
    wanted = ("install", "-y", "--no-install-recommends", "kcat")
    if _apt_get(*wanted):  # the lists of packages may be missing or too old
        problem = _apt_get("update") or _apt_get(*wanted)
        if problem:
            raise ClientError(f"{problem}\n{KCAT_ADVICE}")
    if not shutil.which("kcat"):
        raise ClientError(f"package kcat is installed, but there is no 'kcat'. {KCAT_ADVICE}")


def _apt_get(*arguments: str) -> str:
    """Run apt-get quietly; what it said if it failed."""
    done = subprocess.run(
        ["apt-get", "-qq", "-o", "Dpkg::Use-Pty=0", *arguments],
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.returncode:
        return ""
    return f"'apt-get {' '.join(arguments)}' failed:\n{done.stdout}{done.stderr}"


def main() -> int:
    """Run the command line; the exit status."""
    try:
        ensure_kcat()
        kafka.install()
        connect.JARS.install()
        spark.install()
    except (ClientError, PeerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
