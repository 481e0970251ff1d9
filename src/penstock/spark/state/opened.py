"""Files of state that a process has read and checked before."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.spark.state.container import rows_of
from penstock.spark.state.places import Place
from penstock.spark.state.runs import Run
from penstock.spark.state.sorted_rows import SortedRows


class Opened:
    """The rows of files by their folder; a file that was written anew is another."""

    def __init__(self) -> None:
        self._folders: dict[str, dict[tuple[str, int], SortedRows]] = {}

    def rows(self, folder: Place, run: Run) -> SortedRows:
        """All rows of a run's file.

        Raises:
            FileNotFoundError: it is not there.
            DamagedStateError: it is not what was written.
        """
        files = self._folders.setdefault(folder.url, {})
        name = (run.file, run.checksum)
        if name not in files:
            files[name] = SortedRows(rows_of(folder.read(run.file), f"{folder.url}/{run.file}"))
        return files[name]

    def keep(self, folder: Place, runs: Iterable[Run]) -> None:
        """Let go of a folder's other files: a mapped file holds its place on the disk when removed."""
        files = self._folders.get(folder.url, {})
        needed = {(run.file, run.checksum) for run in runs}
        for name in files.keys() - needed:
            del files[name]
