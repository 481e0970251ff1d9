"""Writing to a journal of changes, with word of what became of it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.errors import NotWrittenError, StorageError
from penstock.log.change_journal import Change, ChangeJournal
from penstock.log.commit import GroupCommit

Done = Callable[[StorageError | None], None]
Write = Callable[[ChangeJournal, GroupCommit, Change, str, Done], None]
_log = logging.getLogger(__name__)
_REMEDY = "see the broker's log, and try again"


def write(
    journal: ChangeJournal, commit: GroupCommit, change: Change, operation: str, done: Done
) -> None:
    """Write a change with the next commit round; done is called after it, with what went wrong."""

    def settled() -> None:
        try:
            if change.durable:
                done(None)
            else:
                done(NotWrittenError(operation, "it was not made durable", _REMEDY))
        finally:
            journal.awaited -= 1

    journal.awaited += 1
    journal.queue(change)
    commit.journal_changed(journal)
    commit.after(settled)


def write_ahead(
    journal: ChangeJournal, commit: GroupCommit, change: Change, operation: str, done: Done
) -> None:
    """The same, but done is called as soon as the change survives the death of this process.

    That is at once if no change is on its way: none is overtaken. A later commit round syncs it.
    """
    if commit.metadata_failed is not None:
        return write(journal, commit, change, operation, done)
    try:
        is_written = journal.write_ahead(change)
    except OSError as error:
        _log.error("cannot %s: %s", operation, error)
        return done(NotWrittenError(operation, "it was not written", _REMEDY))
    if not is_written:
        return write(journal, commit, change, operation, done)
    return done(None)
