"""Makes a partition hold gigabytes that were never written: sealed segments in sparse files.

Indexes and checkpoints are real, made by the log's own code, and as large as such segments have
them. The log files have their length and no contents: a checkpoint vouches for a sealed segment, so
that nothing reads it until a consumer asks for it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from penstock.files import OsFiles
from penstock.limits import GIB, KIB
from penstock.log import checkpoint as checkpoints
from penstock.log.partition import PendingCheckpoint, new_segment, write_checkpoint
from penstock.log.segment import segment_path
from penstock.log.settings import LogSettings
from penstock.record.batch import LENGTH_OVERHEAD, MAGIC, NO_PRODUCER, BatchHeader

BATCH_BYTES = 64 * KIB
RECORDS_PER_BATCH = 600
BATCHES = GIB // BATCH_BYTES
RECORDS = BATCHES * RECORDS_PER_BATCH
AGE_MS = 6 * 24 * 3600 * 1000
"""Everything is younger than the default retention, or the broker would rightly delete it."""


def retain(folder: Path, segments: int) -> None:
    """Give an empty partition of a stopped broker so many sealed segments of one gigabyte."""
    files = OsFiles()
    settings = LogSettings()
    first = segment_path(folder, 0)
    assert first.stat().st_size == 0, "the partition must be empty"
    for path in (first, *(segment_path(folder, 0, s) for s in ("index", "timeindex"))):
        path.unlink(missing_ok=True)
    checkpoints.checkpoint_path(folder, 0).unlink(missing_ok=True)
    oldest = int(time.time() * 1000) - AGE_MS
    for number in range(segments):
        _sealed_segment(files, folder, number * RECORDS, oldest + number * AGE_MS // segments)
    # The one that is written next.
    new_segment(files, folder, segments * RECORDS, settings)
    os.sync()


def _sealed_segment(files: OsFiles, folder: Path, base_offset: int, timestamp: int) -> None:
    segment = new_segment(files, folder, base_offset, LogSettings())
    for number in range(BATCHES):
        offset = base_offset + number * RECORDS_PER_BATCH
        segment.note(_header(offset, timestamp + number), offset)
    segment.seal()
    segment.file.truncate(segment.size)
    content = checkpoints.encode(segment.checkpoint(b""))
    offsets, times = segment.offsets.snapshot(), segment.times.snapshot()
    write_checkpoint(files, PendingCheckpoint(segment, content, offsets, times, final=True))


def _header(base_offset: int, timestamp: int) -> BatchHeader:
    return BatchHeader(
        base_offset=base_offset,
        length=BATCH_BYTES - LENGTH_OVERHEAD,
        leader_epoch=0,
        magic=MAGIC,
        checksum=0,
        attributes=0,
        last_offset_delta=RECORDS_PER_BATCH - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=NO_PRODUCER,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=RECORDS_PER_BATCH,
    )
