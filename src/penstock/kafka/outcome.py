"""How a request that changes something went, and answering only when the change is durable."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.kafka.call import Call
from penstock.kafka.errors import Code, code_of
from penstock.kafka.pace import Made

# An error may quote what the client sent, and a text of the older versions holds 32 KiB at most.
_MESSAGE_CHARS_MAX = 1000


class RefusedError(PenstockError):
    """Something the protocol, not the broker, does not allow."""

    def __init__(self, code: Code, operation: str, cause: str, remedy: str = "") -> None:
        super().__init__(operation, cause, remedy)
        self.code = code


class Outcome(NamedTuple):
    """A code and what to tell a person about it."""

    code: Code
    message: str | None = None

    @property
    def ok(self) -> bool:
        """Whether it was done."""
        return self.code is Code.NONE


DONE = Outcome(Code.NONE)


def failure(error: PenstockError | OSError) -> Outcome:
    """What a client is told of an error."""
    if isinstance(error, OSError):
        return Outcome(Code.KAFKA_STORAGE_ERROR, str(error))
    code = error.code if isinstance(error, RefusedError) else code_of(error)
    return Outcome(code, error.reason[:_MESSAGE_CHARS_MAX])


def outcome_of(error: PenstockError | None) -> Outcome:
    """How something went that ends by saying what went wrong, if anything did."""
    return DONE if error is None else failure(error)


def replying(
    call: Call, build: Callable[[Outcome], Made]
) -> Callable[[PenstockError | None], None]:
    """What to hand to something that ends later: it answers with what is built of the outcome."""
    return lambda error: call.context.pace.answer(call, build(outcome_of(error)))


def attempt(action: Callable[[], object]) -> Outcome:
    """Do something that can be refused."""
    try:
        action()
    except (PenstockError, OSError) as error:
        return failure(error)
    return DONE


def reply_when_durable(call: Call, build: Callable[[Outcome], Made]) -> None:
    """Answer after the next commit round; build is told what became of all that was done."""
    commit = call.context.broker.commit

    def answer() -> None:
        error = commit.metadata_failed
        durable = DONE
        if error is not None:
            durable = Outcome(Code.KAFKA_STORAGE_ERROR, f"the change was not made durable: {error}")
        call.context.pace.answer(call, build(durable))

    commit.after(answer)
