"""Make sure that there is a Java for Spark: `python -m tools.java`, which the demo does first."""

from __future__ import annotations

import sys
from typing import Final

from tools.jars import JAVA_PACKAGE, PeerError, need

# What a JVM for a short test is started with. Its second compiler and its parallel collector take as
# much of the processor as the test; Spark starts in half the time without them.
SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main() -> int:
    """Run the command line; the exit status."""
    try:
        need("java", JAVA_PACKAGE)
    except PeerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
