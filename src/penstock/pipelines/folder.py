"""What is kept of a pipeline on disk: a folder under one for all pipelines, named like the pipeline.

lock             held by the supervisor and by the pipeline's process; holds the supervisor's id
pipeline.json    which file it is, how it was started, what became of it
progress.json    for each query its checkpoint and how far it is
metrics.prom     the same for Prometheus (node_exporter's textfile collector)
log              what the pipeline and Spark write to standard error
checkpoints/     one folder for each query that does not name its own
savepoints/      see savepoints.py
going-back       there while checkpoints are replaced by those of a savepoint; holds its name
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from penstock.errors import ConflictError, NotFoundError, UsageError
from penstock.files import Files, read_whole, write_atomically
from penstock.pipelines.lock import HeldError, PipelineLock, holder
from penstock.pipelines.reports import Progress, Started

_GOING_BACK: Final = "going-back"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Phase(StrEnum):
    """What a pipeline is doing, or how it ended."""

    RUNNING = "running"
    WAITING = "waiting"
    """It failed and is about to be started again."""
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"
    KILLED = "killed"
    """Its supervisor is gone and had no time to say why."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What pipeline.json holds."""

    file: str
    arguments: list[str]
    bootstrap: str
    master: str
    checkpoints: str | None
    phase: Phase
    started_ms: int
    restarts: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """What progress.json holds of one query."""

    query_id: str
    checkpoint: str | None
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """A pipeline as it is now."""

    name: str
    facts: Facts
    pid: int | None
    """The supervisor's; None if it does not run."""
    queries: Mapping[str, Query] = field(default_factory=dict)


class PipelineFolder:
    """One pipeline's.

    Args:
        files: the file system.
        root: the folder of all pipelines.
        name: the pipeline's.

    Raises:
        UsageError: that cannot be a name.
    """

    def __init__(self, files: Files, root: Path, name: str) -> None:
        check_name("cannot name a pipeline", name)
        self.name = name
        self.path = root / name
        self.checkpoints = self.path / "checkpoints"
        self.savepoints = self.path / "savepoints"
        self.log = self.path / "log"
        self._files = files

    @contextlib.contextmanager
    def locked(self, operation: str) -> Iterator[PipelineLock]:
        """Hold the pipeline, so that nobody else runs it.

        Raises:
            ConflictError: somebody does.
        """
        self._files.make_folder(self.path)
        try:
            lock = PipelineLock(self.path / "lock")
        except HeldError as held:
            cause = f"the pipeline {self.name} is running ({held})"
            remedy = f"stop it with `penstock pipelines stop {self.name}`, or choose another name"
            raise ConflictError(operation, cause, remedy) from None
        try:
            yield lock
        finally:
            lock.release()

    def supervisor(self) -> int | None:
        """The process that runs it now."""
        held = holder(self.path / "lock")
        return None if held is None else held.pid

    def write_facts(self, facts: Facts) -> None:
        """Keep what is known of the pipeline."""
        self._write("pipeline.json", asdict(facts))

    def write_queries(self, queries: Mapping[str, Query]) -> None:
        """Keep how far its queries are."""
        self._write("progress.json", {name: asdict(query) for name, query in queries.items()})

    def write_metrics(self, text: str) -> None:
        """Keep the same for Prometheus."""
        write_atomically(self._files, self.path / "metrics.prom", text.encode())

    def facts(self) -> Facts:
        """What is known of the pipeline.

        Raises:
            NotFoundError: there is none.
        """
        found = self._read("pipeline.json")
        if found is None:
            remedy = "`penstock pipelines list` shows those that have been run (--folder)"
            raise NotFoundError(f"cannot find the pipeline {self.name}", "there is none", remedy)
        return Facts(**{**found, "phase": Phase(found["phase"])})

    def queries(self) -> dict[str, Query]:
        """How far its queries are."""
        found = self._read("progress.json") or {}
        return {name: _query(fields) for name, fields in found.items()}

    def describe(self) -> Description:
        """All of it, as it is now.

        Raises:
            NotFoundError: there is none.
        """
        facts = self.facts()
        pid = self.supervisor()
        if pid is None and facts.phase in (Phase.RUNNING, Phase.WAITING):
            facts = replace(facts, phase=Phase.KILLED)
        return Description(self.name, facts, pid, self.queries())

    def mark_going_back(self, label: str | None) -> None:
        """Keep that checkpoints are being replaced by those of a savepoint; None: no longer."""
        mark = self.path / _GOING_BACK
        if label is not None:
            write_atomically(self._files, mark, label.encode())
        elif self._files.exists(mark):
            self._files.remove(mark)
            self._files.sync_folder(self.path)

    def check_can_run(self, operation: str) -> None:
        """Pass unless a way back to a savepoint was not finished.

        Raises:
            ConflictError: it was not.
        """
        with contextlib.suppress(FileNotFoundError):
            label = read_whole(self._files, self.path / _GOING_BACK).decode()
            cause = f"going back to the savepoint {label} was interrupted"
            remedy = f"`penstock pipelines restart-from {self.name} {label}` finishes it"
            raise ConflictError(operation, cause, remedy)

    def _write(self, name: str, content: dict[str, Any]) -> None:
        data = json.dumps(content, indent=2).encode() + b"\n"
        write_atomically(self._files, self.path / name, data)

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(read_whole(self._files, self.path / name))
        except FileNotFoundError:
            return None
        return found


def check_name(operation: str, name: str) -> None:
    """Pass what can be the name of a pipeline or a savepoint, which is that of a folder.

    Raises:
        UsageError: something else.
    """
    if not _NAME.fullmatch(name):
        remedy = "use letters, digits, dots, dashes and underscores"
        raise UsageError(operation, f"'{name}' cannot be a name", remedy)


def started(query: Query | None, report: Started) -> Query:
    """A query that has started, again perhaps."""
    kept = query.progress if query is not None else None
    return Query(report.query_id, report.checkpoint, kept)


def all_pipelines(files: Files, root: Path) -> list[Description]:
    """Every pipeline under a folder."""
    if not files.exists(root):
        return []
    found = [
        PipelineFolder(files, root, name) for name in files.list(root) if _NAME.fullmatch(name)
    ]
    return [folder.describe() for folder in found if files.exists(folder.path / "pipeline.json")]


def _query(fields: dict[str, Any]) -> Query:
    progress = fields.pop("progress")
    return Query(**fields, progress=None if progress is None else Progress(**progress))
