"""Make sure that there is a Java for Spark: `python -m tools.java`, which the demo does first."""

from __future__ import annotations

import sys

from tools.jars import JAVA_PACKAGE, PeerError, need


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
