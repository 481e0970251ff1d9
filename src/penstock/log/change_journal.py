"""A journal of changes to something that is kept in memory as well: written in rounds, and bounded.

An entry is one or more lines of JSON, each of which changes what the lines before it said.

The loop queues changes (`queue`) and asks for a commit round; the commit thread writes and syncs what
is queued (`write`), so that even a rewritten journal costs the loop nothing. After opening, what is
known here belongs to that thread.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.files import Files
from penstock.limits import MIB
from penstock.log.journal import NOT_UNDERSTOOD, Journal
from penstock.log.space import means_full

_REWRITE_BYTES = 4 * MIB
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Change:
    """One line of the journal on its way to the disk."""

    fields: dict[str, Any]
    durable: bool = False
    """Whether it would survive a power failure; meaningful once its commit round is over."""


class ChangeJournal(ABC):
    """See the module."""

    def __init__(self, files: Files, path: Path) -> None:
        self._queue: deque[Change] = deque()
        self._name = path.stem
        self._journal = Journal(files, path)
        self._live_bytes = 0
        for payload in self._journal.entries:
            self._load(payload)
        self.torn = self._journal.torn

    @abstractmethod
    def _apply(self, fields: dict[str, Any]) -> None:
        """Follow a change."""

    @abstractmethod
    def _live(self) -> Iterator[dict[str, Any]]:
        """Changes that would make what is known now."""

    def renew(self) -> None:
        """Make certain what was found after a crash."""
        self._journal.renew()

    def queue(self, change: Change) -> None:
        """Hand a change to the commit thread; called on the loop, before the round is asked for."""
        self._queue.append(change)

    def write(self) -> None:
        """Write and sync all that is queued. Runs on the commit thread, as part of a round.

        Raises:
            OSError: the sync failed, which is final. Changes that could not even be written are
                dropped and stay marked as not durable: the next ones may find room again.
        """
        changes: list[Change] = []
        while self._queue:
            changes.append(self._queue.popleft())
        if not changes:
            return  # an earlier call of this round, or of the one before, has written them
        lines = [_line(change.fields) for change in changes]
        try:
            self._journal.append(b"\n".join(lines))
        except OSError as error:
            _log.error("%d changes of %s not written: %s", len(lines), self._name, error)
            return
        self._journal.sync()
        for change, line in zip(changes, lines, strict=True):
            self._apply(json.loads(line))
            change.durable = True
        if self._journal.size > _REWRITE_BYTES + 2 * self._live_bytes:
            self._rewrite()

    def _rewrite(self) -> None:
        """Replace a journal that has grown by what still counts."""
        try:
            self._journal.rewrite(map(_line, self._live()))
        except OSError as error:
            if not means_full(error):
                raise
            # Nothing was replaced yet, and there may be room for further entries.
            _log.warning("the journal of %s could not be rewritten: %s", self._name, error)
            return
        self._live_bytes = self._journal.size

    def _load(self, payload: bytes) -> None:
        for line in payload.split(b"\n"):
            try:
                self._apply(json.loads(line))
            except NOT_UNDERSTOOD as error:
                # Whole by its checksum, so another version wrote it: what it meant is not guessed.
                _log.error(
                    "entry of %s not understood and left out: %r (%s)", self._name, line[:80], error
                )


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
