"""One queue: a ledger, the journal that remembers it, and the alarm for holders that are late.

What holders finish counts, for everybody, when it is on the disk. What they give back can be had again
at once: only how often that happened is written, and nobody waits for it unless he asked to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from penstock.broker.journaling import Done
from penstock.broker.queues import journal as journal_of
from penstock.broker.queues.journal import QueueId
from penstock.broker.queues.ledger import Given, Kept, Ledger
from penstock.broker.queues.runs import ENDLESS
from penstock.broker.timers import Alarm, CallLater
from penstock.clock import Clock
from penstock.errors import StorageError
from penstock.log.change_journal import Change

Write = Callable[[Change, Done], None]


class Rules(NamedTuple):
    """What the readers of a queue have agreed on."""

    hold_seconds: float
    """How long a holder may take."""
    deliveries_max: int
    """How often something is given out before it is given up."""
    unfinished_max: int
    """Positions that may be on their way at the same time."""


class Verdict(Enum):
    """What a holder says of a position."""

    DONE = "done"
    BACK = "back"
    MORE_TIME = "more time"


class Said(NamedTuple):
    """A verdict on neighbours."""

    first: int
    last: int
    verdict: Verdict


class Hold(NamedTuple):
    """Who gets something, and until when."""

    holder: str
    deadline: float


class Queue:
    """See the module. Usable once it `is_durable`; `watchers` are called when it may have more."""

    def __init__(
        self,
        queue_id: QueueId,
        ledger: Ledger,
        *,
        write: Write,
        rules: Callable[[], Rules],
        clock: Clock,
        call_later: CallLater,
    ) -> None:
        self.id = queue_id
        self.is_durable = False
        self.watchers: set[Callable[[], None]] = set()
        self._ledger = ledger
        self._write = write
        self._rules = rules
        self._clock = clock
        self._alarm = Alarm(call_later)
        self._stopped = False
        self._skipped: list[Kept] = []

    # -- looking

    @property
    def start(self) -> int:
        """Everything below is finished."""
        return self._ledger.start

    @property
    def finished(self) -> int:
        """Positions above the start that are finished, too."""
        return self._ledger.finished

    @property
    def rules(self) -> Rules:
        """In force now."""
        return self._rules()

    @property
    def given_end(self) -> int:
        """Everything from here on has never been given out."""
        return self._ledger.end

    @property
    def limit(self) -> int:
        """Nothing from here on may be given out, until something is finished."""
        return self._ledger.end + max(0, self._rules().unfinished_max - self._ledger.unfinished)

    def next_ready(self, position: int) -> int:
        """The first position from there on that may be given out; it may lie beyond the log's end."""
        return self._ledger.next_ready(position)

    # -- giving out

    @property
    def next_deadline(self) -> float:
        """Until when what is given out now may be held."""
        return self._clock.monotonic() + self._rules().hold_seconds

    def take(self, first: int, last: int, hold: Hold, most: int = ENDLESS) -> list[Given]:
        """Give out what is ready of these positions, `most` of them."""
        given = self._ledger.take(first, last, hold.holder, hold.deadline, most)
        if given and not self._alarm.is_set and not self._stopped:
            self._alarm.set(self._rules().hold_seconds, self._expire)
        return given

    def skip(self, first: int, last: int) -> int:
        """There is nothing at these positions that could be given out; see `remember_skipped`.

        Returns how many of them were not finished before.
        """
        skipped = self._ledger.skip(first, last)
        self._skipped += skipped
        return sum(last - first + 1 for first, last, _ in skipped)

    def remember_skipped(self) -> None:
        """Write down what was skipped: one entry, however many markers there were."""
        skipped, self._skipped = self._skipped, []
        self._remember(skipped)

    # -- what holders say

    def settle(self, holder: str, said: Sequence[Said], done: Done) -> None:
        """Take what a holder says; done is called when it is durable, or with why it is not.

        Raises:
            NotHeldError: it speaks of what it does not hold; nothing was done.
        """
        for first, last, _ in said:
            self._ledger.check(first, last, holder)
        rules = self._rules()
        deadline = self._clock.monotonic() + rules.hold_seconds
        ending: list[Kept] = []
        back: list[Kept] = []
        for asked, last, verdict in said:
            first = max(asked, self.start)
            if first > last:
                continue  # retention has overtaken it
            if verdict is Verdict.DONE:
                self._ledger.end_holding(first, last)
                ending.append(Kept(first, last, None))
            elif verdict is Verdict.BACK:
                back += self._ledger.put_back(first, last, rules.deliveries_max)
            else:
                self._ledger.renew(first, last, deadline)
        if not ending and not back:
            done(None)
            return

        def settled(error: StorageError | None) -> None:
            for first, last, _ in ending:
                if error is None:
                    self._ledger.finish(first, last)
                else:
                    self._ledger.fail(first, last, rules.deliveries_max)
            self.wake()
            done(error)

        self._write(journal_of.kept(self.id, ending + back), settled)
        if back:
            self.wake()

    def leave(self, holder: str) -> None:
        """A holder has gone: what it held is given out again."""
        if self._stopped:
            return  # what is held is memory, and goes with the broker
        self._give_back(self._ledger.put_back_all(holder, self._rules().deliveries_max))

    def _expire(self) -> None:
        now = self._clock.monotonic()
        self._give_back(self._ledger.expire(now, self._rules().deliveries_max))
        deadline = self._ledger.next_deadline
        if deadline is not None:
            self._alarm.set(deadline - now, self._expire)

    def _give_back(self, runs: list[Kept]) -> None:
        self._remember(runs)
        if runs:
            self.wake()

    # -- the log, and the end

    def follow(self, log_start: int) -> None:
        """Retention may have overtaken the queue."""
        start = self.start
        if log_start > start:
            self._ledger.move_start(log_start)
            self._remember([Kept(start, log_start - 1, None)])

    def wake(self) -> None:
        """Tell those who wait that there may be more."""
        for watcher in list(self.watchers):
            watcher()

    def stop(self) -> None:
        """Watch no holder any more: the broker is on its way out, or the queue is gone."""
        self._stopped = True
        self._alarm.cancel()

    def _remember(self, runs: list[Kept]) -> None:
        if runs:
            self._write(journal_of.kept(self.id, runs), lambda _: None)
