"""Java programs for tests and benchmarks: jars fetched with Maven into the user's cache folder, once.

Java and Maven themselves are installed on Debian where we may do that; elsewhere the message says
what is needed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools import debian

JAVA_PACKAGE = "openjdk-17-jre-headless"
MAVEN_PACKAGE = "maven"
_ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


class PeerError(Exception):
    """Another system could not be installed, started or used; the message says what to do."""


@dataclass(frozen=True)
class Jars:
    """Artifacts of Maven's central repository that are used together."""

    name: str
    """Of the folder; it holds the version."""
    artifacts: tuple[tuple[str, str, str], ...]
    """Group, artifact and version of each."""
    transitive: bool = True
    """Whether what they depend on is fetched with them."""

    def folder(self) -> Path:
        """Where they are, or will be, kept."""
        return cache_folder() / self.name

    def install(self) -> Path:
        """Fetch them unless they are there; the folder. Safe in several processes at once."""
        need("java", JAVA_PACKAGE)
        folder = self.folder()
        with filled_once(folder) as missing:
            if missing:
                need("mvn", MAVEN_PACKAGE)
                self._fetch(folder)
        return folder

    def _fetch(self, folder: Path) -> None:
        """Have Maven copy the jars to a temporary folder, then give that its name in one step."""
        say(f"fetching {self.name} with Maven (once) ...")
        started = time.monotonic()
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            work = Path(temporary)
            jars = work / "jars"
            (work / "pom.xml").write_text(self._pom())
            command = ["mvn", "--batch-mode", "--quiet", "-f", str(work / "pom.xml")]
            command += ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            wanted = [f"{artifact}-{version}.jar" for _, artifact, version in self.artifacts]
            if done.returncode or not all((jars / name).exists() for name in wanted):
                output = done.stdout + done.stderr
                raise PeerError(f"Maven could not fetch {self.name}:\n{output}")
            count = len(list(jars.iterdir()))
            jars.rename(folder)
        say(f"{self.name}: {count} jars in {time.monotonic() - started:.0f} s")

    def _pom(self) -> str:
        dependencies = "".join(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version>{'' if self.transitive else _ALONE}</dependency>"
            for group, artifact, version in self.artifacts
        )
        return (
            "<project><modelVersion>4.0.0</modelVersion><groupId>penstock</groupId>"
            "<artifactId>peer</artifactId><version>1</version>"
            f"<dependencies>{dependencies}</dependencies></project>\n"
        )


def cache_folder() -> Path:
    """Where everything that was fetched is kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "penstock"


@contextmanager
def filled_once(folder: Path) -> Iterator[bool]:
    """Whether the folder is missing and to be made in the block, which one process does at a time."""
    if folder.is_dir():
        yield False
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not folder.is_dir()  # another process may have been first


def need(program: str, package: str) -> None:
    """Make sure that the program is there: install its package where we may, else say so."""
    if shutil.which(program):
        return
    try:
        debian.install(
            package,
            f"'{program}' is not installed, and Spark and Kafka need it. "
            f"Debian and Ubuntu: apt-get install {JAVA_PACKAGE} {MAVEN_PACKAGE}; "
            "elsewhere: a Java 17 (or newer) runtime and Apache Maven, both on the PATH.",
        )
    except debian.PackageError as error:
        raise PeerError(str(error)) from error
    if not shutil.which(program):
        raise PeerError(f"package {package} is installed, but there is no '{program}'")


def say(line: str) -> None:
    """Tell whoever waits what is going on."""
    print(line, file=sys.stderr, flush=True)
