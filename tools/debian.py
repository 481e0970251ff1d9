"""Debian's packages, for what a test or benchmark needs: installed where we may, else advised."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys


class PackageError(Exception):
    """A package is missing and could not be installed; the message says what to do."""


def install(package: str, advice: str) -> None:
    """Install the package.

    Raises:
        PackageError: there is no apt-get, we are not root, or it failed. The message has the advice.
    """
    if not (shutil.which("apt-get") and os.geteuid() == 0):
        raise PackageError(advice)
    print(f"installing {package} with apt-get ...", file=sys.stderr, flush=True)
    wanted = ("install", "-y", "--no-install-recommends", package)
    if _apt_get(*wanted):  # the lists of packages may be missing or too old
        problem = _apt_get("update") or _apt_get(*wanted)
        if problem:
            raise PackageError(f"{problem}\n{advice}")


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
