"""Damage in segments that a checkpoint vouched for: recovery did not look, and readers meet it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tests.support.log import DATA, NOW, Log, values

from penstock.errors import DamagedLogError
from penstock.log.partition import Partition
from penstock.log.reading import read

SMALL = {"segment.bytes": "1000", "index.interval.bytes": "100"}
WITHOUT_INDEX = {"segment.bytes": "1000"}
FOLDER = DATA / "topics" / "t-0"


def stopped(config: dict[str, str]) -> Log:
    """Several segments, stopped in order: all but the last are opened without being read."""
    log = Log()
    topic = log.topic(config=config)
    for number in range(40):
        log.append(topic, b"value %d" % number, timestamp=NOW + number)
    log.commit()
    log.broker.close()
    return log


@pytest.fixture
def log() -> Log:
    return stopped(SMALL)


def reopened(log: Log) -> Partition:
    log.open()
    return log.broker.topic("t").partition(0)


def write(log: Log, path: Path, data: bytes, position: int) -> None:
    log.files.open(path).pwrite([data], position)


def batch_positions(log: Log, path: Path) -> list[int]:
    data = log.files.open(path).pread(1 << 20, 0)
    positions = [0]
    while positions[-1] < len(data):
        (length,) = struct.unpack_from(">i", data, positions[-1] + 8)
        positions.append(positions[-1] + 12 + length)
    return positions[:-1]


@pytest.mark.parametrize("length", [2**31 - 1, 5000, 1000])
def test_a_batch_that_passes_the_end_is_not_taken_for_the_end(length: int) -> None:
    """The reader would go on in the next segment, and nobody would miss the records between."""
    log = stopped(WITHOUT_INDEX)
    segment = FOLDER / f"{0:020d}.log"
    second = batch_positions(log, segment)[1]
    write(log, segment, struct.pack(">i", length), second + 8)
    partition = reopened(log)
    for offset in range(2, partition.segments[1].base_offset):
        with pytest.raises(DamagedLogError):
            bytes(read(partition, offset, 1))
    assert bytes(read(partition, partition.segments[1].base_offset, 1))


@pytest.mark.parametrize("length", [-12, 0, 2**31 - 1])
def test_damage_before_the_end_that_a_reader_gets_is_told(length: int) -> None:
    log = stopped(WITHOUT_INDEX)
    segment = FOLDER / f"{0:020d}.log"
    write(log, segment, struct.pack(">i", length), batch_positions(log, segment)[1] + 8)
    with pytest.raises(DamagedLogError, match="log verify"):
        read(reopened(log), 0, 1 << 20, end=4)


@pytest.mark.parametrize("field", [0, 8, 16, 23])
def test_an_index_is_not_rebuilt_from_damaged_batches(log: Log, field: int) -> None:
    """And what is known of the segment stays, so that the next reader is told the same."""
    segment = FOLDER / f"{0:020d}.log"
    at = batch_positions(log, segment)[2] + field
    write(log, segment, b"\x7f\xff\xff\xf0", at)
    write(log, FOLDER / f"{0:020d}.index", b"\xff", 3)
    partition = reopened(log)
    size = partition.segments[0].size
    for _ in range(2):
        with pytest.raises(DamagedLogError, match="rebuild the index"):
            read(partition, 0, 1)
    assert partition.segments[0].size == size
    assert values(partition, partition.segments[1].base_offset)


def test_a_damaged_index_is_rebuilt_from_whole_batches(log: Log) -> None:
    write(log, FOLDER / f"{0:020d}.index", b"\xff", 3)
    assert values(reopened(log)) == [b"value %d" % number for number in range(40)]


@pytest.mark.parametrize(
    "name", ["notes.log", "7.log", "99999999999999999999.log", "-1.log", ".log"]
)
def test_files_that_are_no_segments_are_left_alone(log: Log, name: str) -> None:
    log.files.open(FOLDER / name, create=True).pwrite([b"not ours"], 0)
    assert len(values(reopened(log))) == 40
    assert log.files.exists(FOLDER / name)
