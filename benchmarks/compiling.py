"""The benchmarks' programs in C: compiled when they are first used."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.workload import WorkloadError

_HERE = Path(__file__).parent


def compiled(name: str, *link: str) -> Path:
    """Compile NAME.c, with what the linker is to be told; the program."""
    compiler = os.environ.get("CC") or shutil.which("cc")
    if compiler is None:
        raise WorkloadError("the benchmark's client needs a C compiler (Debian: apt install gcc)")
    program = _HERE.parent / "build" / f"benchmark-{name}"
    program.parent.mkdir(exist_ok=True)
    source = str(_HERE / f"{name}.c")
    command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(program), source, *link, "-pthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WorkloadError(f"{name}.c could not be compiled:\n{done.stderr}")
    return program
