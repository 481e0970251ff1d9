"""A journal of changes to something that is kept in memory as well: written in rounds, and bounded.

An entry is one or more lines of JSON, each of which changes what the lines before it said.

The loop queues changes (`queue`) and asks for a commit round. As for a partition, the loop writes what
is queued when the round begins (`begin_round`), the round syncs it with everything else, and then it
counts (`finish_round`). When the journal has grown so much that it must be rewritten, the commit thread
does all of that, so that it costs the loop nothing; what is known here is its own meanwhile.

A change for whose sync nobody waits can be written at once (`write_ahead`): it survives the death of
this process from then on, and a power failure after the next round, which its owner asks for in time.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from penstock.files import File, Files, lacks_descriptor
from penstock.limits import MIB
from penstock.log.journal import NOT_UNDERSTOOD, Journal
from penstock.log.space import means_full

_REWRITE_BYTES = 4 * MIB
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Change:
    """One line of the journal on its way to the disk."""

    fields: dict[str, Any]
    durable: bool = field(default=False, kw_only=True)
    """Whether it would survive a power failure; meaningful once its commit round is over."""

    def line(self) -> bytes:
        """As it is written."""
        return _ENCODER.encode(self.fields).encode()


class ChangeJournal(ABC):
    """See the module."""

    def __init__(self, files: Files, path: Path) -> None:
        self._queue: list[Change] = []
        self._written: list[Change] = []
        self._is_with_thread = False
        self.is_ahead = False
        """Whether something was written that no round has begun to sync."""
        self.make_room: Callable[[], None] = lambda: None
        """Called when the disk is full, before another try."""
        self.awaited = 0
        """Changes whose writers have not heard yet what became of them."""
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
    def _live(self) -> Iterator[Change]:
        """Changes that would make what is known now."""

    def renew(self) -> None:
        """Make certain what was found after a crash."""
        self._journal.renew()

    def queue(self, change: Change) -> None:
        """Have a change written by the next commit round, which the caller asks for."""
        self._queue.append(change)

    def write_ahead(self, change: Change) -> bool:
        """Write a change now, if it overtakes none; otherwise it has to be queued. Synced later.

        Raises:
            OSError: it was not written.
        """
        if self.awaited or self._queue or self._written or self._is_with_thread:
            return False
        self._append(change.line())
        self._follow(change)
        self.is_ahead = True
        return True

    def _append(self, payload: bytes) -> None:
        """Write an entry, if need be in the room that is kept for metadata."""
        try:
            self._journal.append(payload)
        except OSError as error:
            if not means_full(error):
                raise
            self.make_room()
            self._journal.append(payload)

    @property
    def must_be_rewritten(self) -> bool:
        """Whether most of it no longer counts."""
        return self._journal.size > _REWRITE_BYTES + 2 * self._live_bytes

    # -- a round, by the loop

    def begin_round(self) -> File | None:
        """Write all that is queued; what is to be synced, None if there is nothing.

        Changes that could not be written are dropped and stay marked as not durable: the next ones
        may find room again.
        """
        changes, self._queue = self._queue, []
        return self._journal.file if self._must_be_synced_with(changes) else None

    def _must_be_synced_with(self, changes: list[Change]) -> bool:
        """Write changes; whether these, or any before them, were written and not synced."""
        must_be_synced, self.is_ahead = self.is_ahead, False
        if changes:
            try:
                self._append(b"\n".join([change.line() for change in changes]))
                self._written = changes
                must_be_synced = True
            except OSError as error:
                _log.error("%d changes of %s not written: %s", len(changes), self._name, error)
        return must_be_synced

    def finish_round(self, *, synced: bool) -> None:
        """What was written counts, or never will."""
        changes, self._written = self._written, []
        if synced:
            for change in changes:
                self._follow(change)
                change.durable = True

    def refuse(self) -> None:
        """Drop what is queued: nothing can be made durable any more."""
        self._queue = []

    # -- a round, by the commit thread

    def hand_over(self) -> Callable[[], None]:
        """What the thread shall do: write and sync what is queued now, then rewrite the journal.

        It raises OSError if the sync failed, which is final.
        """
        self._is_with_thread = True
        changes, self._queue = self._queue, []
        return partial(self._write, changes)

    def _write(self, changes: list[Change]) -> None:
        if self._must_be_synced_with(changes):
            self._journal.sync()
            self.finish_round(synced=True)
        self._rewrite()
        self._is_with_thread = False

    def _rewrite(self) -> None:
        """Replace a journal that has grown by what still counts."""
        try:
            self._journal.rewrite(change.line() for change in self._live())
        except OSError as error:
            if not (means_full(error) or lacks_descriptor(error)):
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

    def _follow(self, change: Change) -> None:
        """Follow a change that was written."""
        self._apply(change.fields)
