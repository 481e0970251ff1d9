"""Finds the Java that Spark runs on, and says how to get one."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.errors import UsageError

_OLDEST: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_REMEDY: Final = (
    "install it (Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17), "
    "or set JAVA_HOME to where it is"
)


def check_java(environ: Mapping[str, str]) -> None:
    """Pass where Spark will find a Java that it can run on.

    Raises:
        UsageError: there is none, or it is too old; the message says what to install.
    """
    operation = "cannot start Spark"
    home = environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else "java"
    found = shutil.which(command, path=environ.get("PATH"))
    if found is None:
        cause = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no Java"
        raise UsageError(operation, cause, _REMEDY)
    done = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 -- the user's own Java
    version = _VERSION.search(done.stderr + done.stdout)
    if version is None or int(version[1]) < _OLDEST:
        said = version[1] if version else "not a Java that says its version"
        raise UsageError(operation, f"{found} is {said}; Spark needs {_OLDEST} or newer", _REMEDY)
