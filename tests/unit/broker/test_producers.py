"""What the table of producers says of transactions, for readers of committed records."""

from __future__ import annotations

import pytest

from penstock.broker.producers import ProducerTable
from penstock.record.batch import TRANSACTIONAL_FLAG, parse
from penstock.record.encode import NewRecord, encode
from penstock.record.marker import encode_marker
from penstock.testing.clock import ManualClock


def write(table: ProducerTable, offset: int, producer: int = 1) -> None:
    data = encode(
        [NewRecord(b"v")],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        attributes=TRANSACTIONAL_FLAG,
    )
    table.appended(parse(data), offset)


def end(table: ProducerTable, offset: int, producer: int = 1, *, commit: bool = True) -> None:
    table.ended(parse(encode_marker(producer, 0, 0, commit=commit)), offset, commit=commit)


def test_a_transaction_counts_when_its_marker_is_durable() -> None:
    table = ProducerTable(ManualClock())
    write(table, 5)
    assert table.last_stable_offset(6) == 5
    end(table, 6)
    assert table.last_stable_offset(6) == 5
    assert table.last_stable_offset(7) == 7


def test_the_first_open_one_holds_readers_up() -> None:
    table = ProducerTable(ManualClock())
    write(table, 1, producer=1)
    write(table, 2, producer=2)
    end(table, 3, producer=1)
    assert table.last_stable_offset(4) == 2
    end(table, 4, producer=2)
    assert table.last_stable_offset(5) == 5


def test_aborted_ones_are_told_to_those_who_read_there() -> None:
    table = ProducerTable(ManualClock())
    for number in range(10):
        write(table, 10 * number)
        end(table, 10 * number + 5, commit=number % 2 == 0)
    assert [a.first_offset for a in table.aborted_between(0, 100)] == [10, 30, 50, 70, 90]
    assert [a.first_offset for a in table.aborted_between(35, 71)] == [30, 50, 70]
    assert table.aborted_between(96, 200) == []
    table.forget_aborted(36)
    assert [a.first_offset for a in table.aborted_between(0, 100)] == [50, 70, 90]


def test_a_snapshot_has_it_all() -> None:
    table = ProducerTable(ManualClock())
    write(table, 0)
    end(table, 1, commit=False)
    write(table, 2, producer=2)
    restored = ProducerTable(ManualClock())
    restored.restore(table.snapshot())
    assert restored.open_transactions == {2: 2}
    assert restored.last_stable_offset(9) == 2
    assert restored.aborted_between(0, 9) == table.aborted_between(0, 9)
    assert (restored.epoch_of(1), restored.epoch_of(3)) == (0, -1)


def test_many_that_nobody_reads_take_no_memory_and_hide_nothing() -> None:
    table = ProducerTable(ManualClock())
    for number in range(10_000):
        write(table, 2 * number)
        end(table, 2 * number + 1)
    assert len(table._ending) <= 101
    assert table.last_stable_offset(20_000) == 20_000


DAY_MS = 24 * 3600 * 1000


def stamped(table: ProducerTable, producer: int, timestamp: int) -> None:
    data = encode(
        [NewRecord(b"v", timestamp=timestamp)],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
    )
    assert table.find_duplicate(parse(data)) is None
    table.appended(parse(data), producer)


@pytest.mark.parametrize("restart", [False, True])
def test_a_producer_is_kept_for_a_day_of_ours_though_others_write_later_times(
    restart: bool,
) -> None:
    clock = ManualClock()
    table = ProducerTable(clock)
    stamped(table, 1, timestamp=DAY_MS)
    stamped(table, 2, timestamp=5 * DAY_MS)
    if restart:
        state, table = table.snapshot(), ProducerTable(clock)
        table.restore(state)
    clock.advance(DAY_MS / 1000)
    table.snapshot()
    assert len(table) == 2
    clock.advance(1)
    table.snapshot()
    assert [state.producer_id for state in table.states()] == [2]
