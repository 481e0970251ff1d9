"""Gives states a version for a batch in which nobody touched them.

Spark leaves out what hangs on a source that has not moved, so that an operator may have no task at all
in a batch; also one that the query no longer has. Every batch needs a version of every bucket, because
one that is not there counts as lost. The driver writes it, after the batch and before Spark commits it.
"""

from __future__ import annotations

from penstock.spark.state.places import states_place
from penstock.spark.state.reading import bucket_at
from penstock.spark.state.versions import batches


def carry(checkpoint: str, batch_id: int) -> None:
    """Write what the tasks of a batch did not."""
    states = states_place(checkpoint)
    for root in map(states.below, states.names()):
        for folder in map(root.below, root.names()):
            held = batches(folder.names())
            if batch_id not in held and batch_id - 1 in held:
                bucket = bucket_at(folder, batch_id - 1)
                bucket.write(batch_id, bucket.stored_schema().empty_table())
