"""Offsets of a group in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.offsets_file import format_offsets, parse_offsets, read_offsets, write_offsets
from penstock.errors import PenstockError, UsageError

OFFSETS = {("orders", 0): 42, ("orders", 10): None, ("a.b-c_d", 2): 2**63 - 1}


def test_what_was_written_is_read() -> None:
    data = format_offsets(OFFSETS)
    assert data == b"a.b-c_d,2,9223372036854775807\norders,0,42\norders,10,\n"
    assert parse_offsets(data.decode().splitlines(), "x.csv") == OFFSETS


def test_what_kafkas_tools_and_people_write_is_read() -> None:
    lines = ['"orders",0,42', "", "orders, 1, 7"]
    assert parse_offsets(lines, "x") == {("orders", 0): 42, ("orders", 1): 7}


@pytest.mark.parametrize(
    "line",
    ["orders", "orders,0", "orders,0,1,2", "orders,a,1", "orders,0,-1", "orders,,1", "o,0,²"],
)
def test_a_line_that_is_something_else(line: str) -> None:
    with pytest.raises(UsageError, match=r"cannot read line 2 of x\.csv: .* is no offset; write"):
        parse_offsets(["orders,5,1", line], "x.csv")


def test_a_partition_twice() -> None:
    with pytest.raises(UsageError, match="line 2 of x: orders partition 0 was there before"):
        parse_offsets(["orders,0,1", "orders,0,1"], "x")


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    write_offsets(path, OFFSETS)
    with pytest.raises(UsageError, match="it exists"):
        write_offsets(path, {})
    assert read_offsets(path) == OFFSETS
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match=r"cannot write .*: No such file or directory"):
        write_offsets(tmp_path / "none" / "offsets.csv", OFFSETS)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="it is not text"):
        read_offsets(path)
