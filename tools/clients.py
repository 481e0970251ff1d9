"""Make sure that the clients which are no Python packages are there, for `make test` and `compat`.

`python -m tools.clients` looks for kcat, for Kafka's Java client with its tools, of today and of
some years ago, for Kafka Connect and for Spark with its Kafka connector. Debian's package of kcat
is installed where we may do that; elsewhere the message says how to get it.
"""

from __future__ import annotations

import shutil
import sys

from tools import connect, debian, kafka, spark
from tools.debian import PackageError
from tools.jars import PeerError

KCAT_ADVICE = (
    "'kcat' is not installed, and the client tests need it. "
    "Debian and Ubuntu: apt-get install kcat; macOS: brew install kcat; "
    "elsewhere: the package of your system, or build it from its sources (edenhill/kcat)."
)


def ensure_kcat() -> None:
    """Install kcat unless it is there."""
    if shutil.which("kcat"):
        return
    debian.install("kcat", KCAT_ADVICE)
    if not shutil.which("kcat"):
        raise PackageError(f"package kcat is installed, but there is no 'kcat'. {KCAT_ADVICE}")


def main() -> int:
    """Run the command line; the exit status."""
    try:
        ensure_kcat()
        kafka.install()
        kafka.OLDER.install()
        connect.JARS.install()
        spark.install()
    except (PackageError, PeerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
