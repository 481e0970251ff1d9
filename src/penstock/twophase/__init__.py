"""Writing to a database and to the log as one: both happen, or neither.

`Writer` does it for SQLite and PostgreSQL. `TwoPhaseProducer` is what it is made of, for anything else
that can store a short text together with its own changes. Both need a broker with two-phase transactions
(KIP-939), which Penstock is.
"""

from penstock.client.fencing import FencedError
from penstock.twophase.producer import TwoPhaseProducer
from penstock.twophase.writer import Writer

__all__ = ["FencedError", "TwoPhaseProducer", "Writer"]
