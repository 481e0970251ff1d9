"""Runs examples one after the other in one process, in which Spark's JVM starts once for all of them.

    python -m tests.docs.example_runner

Each line on standard input is the path of a file, which is run in its folder: as a program, or by
pytest if there are tests in it. Each line on standard output is "ok" or "failed"; what examples print
goes to standard error.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from pathlib import Path

import pytest


def run(file: Path) -> bool:
    """Run one file; whether it went well."""
    environment, path = dict(os.environ), list(sys.path)
    os.chdir(file.parent)
    try:
        if "def test_" in file.read_text():
            return pytest.main(["-q", "-p", "no:cacheprovider", file.name]) == 0
        runpy.run_path(str(file), run_name="__main__")
    except (Exception, SystemExit):  # whatever an example raises is its result
        traceback.print_exc()
        return False
    finally:
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = path
        sys.modules.pop(file.stem, None)  # or pytest would take the next file for this one
        _end_spark()
    return True


def _end_spark() -> None:
    """What a failed example has left must not be the session of the next one."""
    pyspark = sys.modules.get("pyspark")
    left = pyspark.SparkContext._active_spark_context if pyspark is not None else None
    if left is not None:
        left.stop()


def main() -> None:
    """Run what is asked for until there is no more."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        for line in sys.stdin:
            answers.write("ok\n" if run(Path(line.rstrip("\n"))) else "failed\n")
            answers.flush()


if __name__ == "__main__":
    main()
