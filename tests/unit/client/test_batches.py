"""What a reader of committed records sees of a fetch."""

from __future__ import annotations

from penstock.client.batches import Batches
from penstock.client.cluster import Fetched
from penstock.record.batch import TRANSACTIONAL_FLAG, patch
from penstock.record.encode import NewRecord, encode
from penstock.record.marker import encode_marker


def placed(batch: bytearray, offset: int) -> bytearray:
    patch(batch, 0, offset, 0)
    return batch


def records(offset: int, count: int, producer_id: int = -1) -> bytearray:
    attributes = TRANSACTIONAL_FLAG if producer_id >= 0 else 0
    some = [NewRecord(b"v")] * count
    return placed(encode(some, producer_id=producer_id, attributes=attributes), offset)


def marker(offset: int, producer_id: int, *, commit: bool) -> bytearray:
    return placed(encode_marker(producer_id, 0, 0, commit=commit), offset)


def seen(data: bytes, offset: int, aborted: list[tuple[int, int]]) -> tuple[list[int], int]:
    batches = Batches(Fetched(data, 100, aborted), offset)
    return [batch.header.base_offset for batch in batches], batches.next_offset


def test_aborted_batches_and_markers_are_left_out() -> None:
    data = b"".join(
        [
            records(0, 2, producer_id=1),
            records(2, 2, producer_id=2),
            records(4, 1),
            marker(5, 1, commit=False),
            records(6, 2, producer_id=1),
            marker(8, 2, commit=True),
            marker(9, 1, commit=True),
        ]
    )
    assert seen(data, 0, [(1, 0)]) == ([2, 4, 6], 10)


def test_a_producer_that_aborts_twice() -> None:
    data = b"".join(
        [
            records(0, 1, producer_id=1),
            marker(1, 1, commit=False),
            records(2, 1, producer_id=1),
            marker(3, 1, commit=True),
            records(4, 1, producer_id=1),
            marker(5, 1, commit=False),
        ]
    )
    assert seen(data, 0, [(1, 0), (1, 4)]) == ([2], 6)


def test_goes_on_after_the_last_whole_batch() -> None:
    whole = bytes(records(0, 3))
    data = whole + bytes(records(3, 3))
    assert seen(data[:-1], 0, []) == ([0], 3)
    assert seen(data[: len(whole) + 20], 0, []) == ([0], 3)
    assert seen(b"", 7, []) == ([], 7)


def test_a_batch_that_ends_before_the_offset_is_skipped() -> None:
    data = bytes(records(0, 3) + records(3, 3))
    assert seen(data, 3, []) == ([3], 6)
    assert seen(data, 4, []) == ([3], 6)
