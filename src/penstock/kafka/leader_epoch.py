"""Whether a client knows the start of the server that it speaks to.

A client says which epoch it believes a partition to be in. One that comes with that of an earlier start
is told so: it asks for the metadata again, and then whether the log was cut under it (offsets.py).
"""

from __future__ import annotations

from penstock.kafka.errors import Code

_NOT_SAID = -1


def epoch_code(said: int, epoch: int) -> int:
    """What to answer to a client that takes said for the epoch of a partition."""
    if said in (_NOT_SAID, epoch):
        return Code.NONE
    return Code.FENCED_LEADER_EPOCH if said < epoch else Code.UNKNOWN_LEADER_EPOCH
