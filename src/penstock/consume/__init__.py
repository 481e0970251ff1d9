"""A consumer whose effects and whose position are one transaction of its database.

`consume_into` reads records with an ordinary Kafka client, of Penstock or of any other broker, and
stores how far it has come in the database that it writes to, in the same transaction as the writes.
Whatever happens, every record is applied once: a crash undoes both or neither, and what was applied
is skipped.
"""

from penstock.consume.loop import consume_into
from penstock.consume.positions import RecordsGoneError

__all__ = ["RecordsGoneError", "consume_into"]
