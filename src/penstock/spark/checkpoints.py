"""Keeps what Spark has planned for a batch safe before a sink is written to.

Spark's checkpoint says what a batch reads: a file `offsets/N`, made before batch N runs. It is not
synced to a local disk. Were it lost after the sink has committed batch N, Spark would plan another
batch N, with more in it, and the sink would take it for the one it has. So there is a durable copy of
the plan before the sink is written to. Damage to the newest files is repaired from it at the next start:

offsets/N missing or not as kept    it is what the copy says
offsets/N damaged, never kept       it is removed: no sink has seen that batch, and Spark plans it anew
commits/N damaged, the newest       it is removed: if batch N runs again, the sink finds its marker
metadata missing or not as kept     it is what the copy says: without it the query would be another one
"""

from __future__ import annotations

import json
import logging
from typing import Final

from penstock.errors import ConflictError
from penstock.pipelines.savepoints import KEPT_PLANS
from penstock.spark.durable_files import DurableFolder

_METADATA: Final = "metadata"
# The last one is what a restart runs again; one more, for a look at what happened.
_COPIES: Final = 2
_log = logging.getLogger(__name__)


class Plans:
    """The plans of one checkpoint.

    Args:
        checkpoint: the folder in which Spark keeps how far it is.
    """

    def __init__(self, checkpoint: str) -> None:
        self._files = DurableFolder(checkpoint)
        self._operation = f"cannot go on with checkpoint {checkpoint}"

    def keep(self, batch_id: int) -> bool:
        """Make the plan of a batch safe, before anything of it is written; whether it was already.

        Raises:
            ConflictError: the batch was another one when it ran before: its rows may be written.
        """
        planned = f"offsets/{batch_id}"
        before = self._files.read(f"{KEPT_PLANS}/{planned}") is not None
        for name in (_METADATA, planned):
            plan, kept = self._files.read(name), self._files.read(f"{KEPT_PLANS}/{name}")
            assert plan is not None, "Spark writes it before it runs a batch"
            if kept is not None and kept != plan:
                cause = f"{name} is not what it was when batch {batch_id} ran before"
                remedy = "stop the query and start it again: it is restored then"
                raise ConflictError(self._operation, cause, remedy)
            if kept is None:
                self._files.put(f"{KEPT_PLANS}/{name}", plan)
        for old in self._numbers(f"{KEPT_PLANS}/offsets")[:-_COPIES]:
            self._files.remove(f"{KEPT_PLANS}/offsets/{old}")
        return before

    def restore(self) -> None:
        """Repair the newest files of a checkpoint, before its query starts."""
        kept = self._numbers(f"{KEPT_PLANS}/offsets")
        for name in (_METADATA, *(f"offsets/{number}" for number in kept)):
            copy = self._files.read(f"{KEPT_PLANS}/{name}")
            if copy is not None and self._files.read(name) != copy:
                _log.warning("%s of the checkpoint was missing or damaged, and is restored", name)
                self._files.put(name, copy)
        newest = kept[-1] if kept else -1
        for number in self._numbers("offsets"):
            if number > newest:
                self._remove_damaged(f"offsets/{number}")
        # Spark reads the newest one, which is that of the batch before if the last one did not end.
        for number in reversed(self._numbers("commits")):
            if not self._remove_damaged(f"commits/{number}"):
                break

    def _remove_damaged(self, name: str) -> bool:
        """Remove a file if it is damaged; whether it was."""
        if _is_whole(self._files.read(name) or b""):
            return False
        _log.warning("%s of the checkpoint was damaged, and is removed", name)
        self._files.remove(name)
        return True

    def _numbers(self, folder: str) -> list[int]:
        return sorted(int(name) for name in self._files.names(folder) if name.isdecimal())


def _is_whole(content: bytes) -> bool:
    """Whether a log file of Spark is all there: its version, then lines of JSON, numbers or `-`."""
    version, *lines = content.decode(errors="replace").split("\n")
    if not version.startswith("v") or not lines:
        return False
    try:
        for line in lines:
            if line != "-":
                json.loads(line)
    except ValueError:
        return False
    return True
