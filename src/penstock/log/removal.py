"""How segments and folders go: they lose their names first, in order, and their data later."""

from __future__ import annotations

import logging
from pathlib import Path
from uuid import UUID

from penstock.files import Files, SyncAllError
from penstock.log.names import longer
from penstock.log.segment import Segment

DELETED = ".deleted"  # after a tilde and the topic's id: neither can stand in a topic's name
_log = logging.getLogger(__name__)


def deleted_name(folder: str, topic_id: UUID) -> str:
    """What the folder of a partition is called whose topic is gone."""
    return longer(folder, f"~{topic_id.hex}{DELETED}")


def retire(files: Files, folder: Path, segments: list[Segment], removed: list[Path]) -> None:
    """Rename the files of segments that are no longer kept. Runs on the commit thread."""
    if not files.exists(folder):
        return  # the topic was deleted meanwhile, and its folder has another name
    try:
        for segment in segments:
            # The log file first and for good: a crash in between leaves a log that begins later,
            # never one with a hole.
            for path in reversed(segment.paths()):
                gone = path.with_name(path.name + DELETED)
                files.rename(path, gone)
                removed.append(gone)
                if path.suffix == ".log":
                    files.sync_folder(folder)
    except SyncAllError:
        raise
    except OSError as error:
        # What keeps its name is removed at the next start: the recorded start lies above it.
        _log.error("%s: old segments could not be removed: %s", folder.name, error)


def remove_files(files: Files, paths: list[Path]) -> None:
    """Remove those of the files that are still there."""
    for path in paths:
        if files.exists(path):
            files.remove(path)


def remove_tree(files: Files, folder: Path) -> None:
    """Remove a folder of files."""
    for name in files.list(folder):
        files.remove(folder / name)
    files.remove_folder(folder)
