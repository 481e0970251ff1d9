"""Writing to a journal of changes, with word of what became of it."""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import StorageError
from penstock.log.change_journal import Change, ChangeJournal
from penstock.log.commit import GroupCommit

Done = Callable[[StorageError | None], None]


def write(
    journal: ChangeJournal, commit: GroupCommit, change: Change, operation: str, done: Done
) -> None:
    """Write a change with the next commit round; done is called after it, with what went wrong."""

    def settled() -> None:
        if change.durable:
            done(None)
        else:
            cause = "it was not made durable"
            done(StorageError(operation, cause, "see the broker's log, and try again"))

    journal.queue(change)
    commit.journal_changed(journal)
    commit.after(settled)
