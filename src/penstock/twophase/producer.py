"""A producer whose transactions are ended by a decision that is made elsewhere.

    STARTED  --recover--> READY
    READY    --send--> OPEN
    OPEN     --prepare--> PREPARED       all is on the broker's disk, and stays there undecided
    OPEN     --something fails--> FAILED
    PREPARED --commit--> READY
    OPEN, PREPARED, FAILED --abort--> READY

and to LOST from anywhere, when it is not known any more what became of the last transaction: whoever
uses the name next finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from types import TracebackType
from typing import Any, Final, Literal

from penstock.client import two_phase
from penstock.client.direct import Direct
from penstock.clock import SystemClock
from penstock.errors import PenstockError, UsageError
from penstock.twophase.batches import Batches

_END_SECONDS: Final = 30.0


class State(Enum):
    """See the module; the value says what can be done next."""

    STARTED = "call recover() with the token in your database, or an empty one"
    READY = "send something"
    OPEN = "call prepare(), or abort()"
    PREPARED = "call commit(), or abort()"
    FAILED = "call abort()"
    LOST = "start another producer with this name"


class TwoPhaseProducer:
    """Sends records in transactions; see the module. Not for several threads at a time."""

    def __init__(self, bootstrap: str, name: str) -> None:
        """Take a name over: who had it before can do no more; what it left open stays so.

        Args:
            bootstrap: Address of a broker.
            name: The transactional id. One program at a time uses it, again and again.

        Raises:
            UsageError: the broker has no two-phase transactions.
            PenstockError: the broker refused, or could not be reached.
        """
        operation = f"cannot produce as {name}"
        self._name = name
        self._direct = Direct(bootstrap, operation)
        self._state = State.STARTED
        try:
            self._identity, self._left = two_phase.take_over(self._direct, name, operation)
        except PenstockError:
            self._direct.close()
            raise
        self._batches = Batches(self._direct, name, self._identity)

    def __enter__(self) -> TwoPhaseProducer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection. A transaction that is open stays so, for the next one with this name."""
        self._direct.close()
        self._state = State.LOST

    @property
    def holder(self) -> str:
        """Names this incarnation: no other with the same name has or had the same."""
        return self._identity.token

    def recover(self, token: str) -> Literal["committed", "aborted", "nothing"]:
        """End what the last user of the name left open: commit it if the token is its own, else abort.

        Raises:
            PenstockError: it could not be ended.
        """
        self._need(State.STARTED)
        if self._left is None:
            self._state = State.READY
            return "nothing"
        commit = token == self._left.token
        self._end(commit=commit)
        return "committed" if commit else "aborted"

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Add a record to the transaction, which begins with the first. It may be sent later.

        Args:
            topic: An existing topic.
            value: What to say; None for a tombstone.
            key: Decides the partition, as in other clients.
            partition: Which one, if that is to be decided here.
            headers: Names and values.
            timestamp_ms: None for now.

        Raises:
            PenstockError: the record, or one before it, was not taken; abort.
        """
        self._need(State.READY, State.OPEN)
        self._state = State.OPEN
        now = SystemClock().wall_ms() if timestamp_ms is None else timestamp_ms
        self._or_fail(lambda: self._batches.add(topic, value, key, partition, headers, now))

    def prepare(self) -> str:
        """Have everything on the broker's disk; the token, to be stored with what must happen too.

        It is empty if nothing was sent.

        Raises:
            PenstockError: not everything was taken; abort.
        """
        self._need(State.READY, State.OPEN)
        if self._state is State.READY:
            return ""
        self._or_fail(self._batches.flush)
        self._state = State.PREPARED
        return self._identity.token

    def commit(self) -> None:
        """Commit what was prepared, after the token was stored for good.

        Raises:
            FencedError: another has the name now, and has committed it, as the stored token says.
            PenstockError: the broker could not be asked; it commits when the name is used again.
        """
        self._need(State.READY, State.PREPARED)
        if self._state is State.PREPARED:
            self._end(commit=True)

    def abort(self) -> None:
        """Undo everything since the last commit or abort.

        Raises:
            FencedError: another has the name now.
            PenstockError: the broker could not be asked; it aborts when the name is used again.
        """
        self._need(State.READY, State.OPEN, State.PREPARED, State.FAILED)
        if self._state is not State.READY:
            self._end(commit=False)

    def leave(self) -> None:
        """Leave the transaction to the next user of the name: what was decided is not known here."""
        self._state = State.LOST

    def _end(self, *, commit: bool) -> None:
        state, self._state = self._state, State.LOST
        operation = f"cannot {'commit' if commit else 'abort'} the transaction of {self._name}"
        if state is not State.STARTED and not self._batches.began:
            self._batches.reset(self._identity)  # nothing left this process
        else:
            self._identity = two_phase.end(
                *(self._direct, self._name, self._identity, operation),
                commit=commit,
                seconds=_END_SECONDS,
            )
            self._batches.reset(self._identity)
        self._left = None
        self._state = State.READY

    def _or_fail(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except PenstockError:
            self._state = State.FAILED
            raise

    def _need(self, *states: State) -> None:
        if self._state not in states:
            cause = f"the producer is {self._state.name.lower()}"
            raise UsageError(f"cannot do this as {self._name}", cause, self._state.value)
