"""`penstock log` on real files: what it says of them, and its exit codes."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.commands import Commands

from penstock.record.batch import HEADER_BYTES, parse
from penstock.testing import broker


@pytest.fixture
def cli() -> Commands:
    return Commands("127.0.0.1:1")  # nobody listens there: the files are enough


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a topic on disk, before and behind one that is in memory only."""
    folder = tmp_path / "data"
    with broker(folder) as running:
        cli = Commands(running.bootstrap)
        for name in ("early", "orders"):
            cli.ok("topics", "create", name)
            cli.ok("produce", name, "-k", ":", data=b"a:one\n")
            cli.ok("produce", name, "-k", ":", data=b"b:two\n")
        cli.ok("topics", "create", "fleeting", "-c", "penstock.durability=memory")
        cli.ok("produce", "fleeting", data=b"gone\n")
    return folder


def damage(data: Path) -> None:
    """Change the last byte of the second batch of orders."""
    segment = data / "topics" / "orders-0" / f"{0:020d}.log"
    content = bytearray(segment.read_bytes())
    end = 0
    for _ in range(2):
        end += parse(bytes(content[end : end + HEADER_BYTES])).size
    content[end - 1] ^= 1
    segment.write_bytes(content)


# -- verify


def test_a_topic_in_memory_is_named_and_passed_over(cli: Commands, data: Path) -> None:
    assert cli.ok("log", "verify", str(data)).splitlines() == [
        "early-0: 2 records in 2 batches",
        "fleeting-0: nothing of it is on disk (penstock.durability=memory)",
        "orders-0: 2 records in 2 batches",
    ]
    assert "nothing of it" in cli.ok("log", "verify", str(data / "topics" / "fleeting-0"))


def test_what_cannot_be_read_does_not_end_the_pass(cli: Commands, data: Path) -> None:
    segment = data / "topics" / "early-0" / f"{0:020d}.log"
    segment.unlink()
    done = cli.run("log", "verify", str(data))
    assert done.stdout.decode().splitlines()[0] == "early-0: NOT CHECKED: it holds no segments"
    assert "orders-0: 2 records" in done.stdout.decode()
    assert (done.code, "1 partition could not be read" in done.stderr) == (1, True)
    segment.mkdir()
    done = cli.run("log", "verify", str(data))
    assert done.stdout.decode().splitlines()[0] == "early-0: NOT CHECKED: Is a directory"
    assert done.code == 1
    damage(data)
    done = cli.run("log", "verify", str(data))
    assert "orders-0: DAMAGED at offset 1" in done.stdout.decode()
    assert (done.code, "1 damaged place found" in done.stderr) == (7, True)
    shutil.rmtree(data / "topics" / "early-0")
    assert "no such folder" in cli.refused(3, "log", "verify", str(data / "topics" / "early-0"))


def test_a_torn_tail_may_not_be_damage(cli: Commands, data: Path) -> None:
    with (data / "topics" / "orders-0" / f"{0:020d}.log").open("ab") as segment:
        segment.write(b"half a batch")
    done = cli.run("log", "verify", str(data))
    assert "orders-0: after a crash this may be a torn tail" in done.stdout.decode()
    assert done.code == 7


@pytest.mark.parametrize("command", ["dump", "verify"])
def test_a_segment_is_not_a_folder(cli: Commands, data: Path, command: str) -> None:
    folder = data / "topics" / "orders-0"
    said = cli.refused(2, "log", command, str(folder / f"{0:020d}.log"))
    assert said.endswith(f"it is a file; name the folder it is in, {folder}\n")


# -- dump


def test_dump_shows_records_as_they_are(cli: Commands, data: Path) -> None:
    line = (
        '{"key": "AP8=", "key_encoding": "base64", "value": "a\\n\\u001b[2Jb", "headers": '
        '[{"key": "h", "value": "1"}, {"key": "h", "value": "/w==", "encoding": "base64"}]}'
    )
    with broker(data) as running:
        Commands(running.bootstrap).ok("produce", "orders", "--json", data=line.encode())
    folder = str(data / "topics" / "orders-0")
    batches = cli.ok("log", "dump", folder, "--records", "--json").splitlines()
    (record,) = json.loads(batches[-1])["records"]
    assert (record["key"], record["key_encoding"]) == ("AP8=", "base64")
    assert (record["value"], record["offset"]) == ("a\n\x1b[2Jb", 2)
    assert record["headers"] == [
        {"key": "h", "value": "1"},
        {"key": "h", "value": "/w==", "encoding": "base64"},
    ]
    shown = cli.ok("log", "dump", folder, "--records").splitlines()
    assert len(shown) == 6
    assert "key=AP8=  key_encoding=base64  value=a\\x0a\\x1b[2Jb  headers=[{" in shown[-1]


# -- repair


def test_repair_beside_a_server_says_what_to_do(cli: Commands, data: Path) -> None:
    with broker(str(data)):
        said = cli.refused(5, "log", "repair", str(data / "topics" / "orders-0"), "--skip")
    assert "in use by process" in said
    assert said.endswith("; stop that process first\n")


@contextmanager
def another_user() -> Iterator[None]:
    """One who may read what others may, and nothing more, whoever runs the tests."""
    ours = os.geteuid()
    if ours == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(ours)


@pytest.mark.parametrize("readable", [True, False])
def test_repair_of_what_another_user_has_says_whose_it_is_to_do(
    cli: Commands, data: Path, readable: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        copied = Path(name) / "data"
        shutil.copytree(data, copied)
        for path in (Path(name), copied, *copied.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        if not readable:
            copied.chmod(0)
        with another_user():
            said = cli.refused(2, "log", "repair", str(copied / "topics" / "orders-0"), "--skip")
        copied.chmod(0o755)
        assert "Permission denied: " in said
        assert said.endswith("; run it as the user whose folder it is\n")


# -- consume


def test_consume_names_the_damage_and_reads_on_behind_it(data: Path) -> None:
    with broker(data) as running:
        Commands(running.bootstrap).ok("produce", "orders", data=b"three\n")
    damage(data)
    with broker(data) as running:
        cli = Commands(running.bootstrap)
        done = cli.run("consume", "orders")
        assert (done.code, done.stdout) == (7, b"one\n")
        assert "cannot consume orders: partition 0 is damaged at offset 1: " in done.stderr
        assert "`penstock log verify DIR`" in done.stderr
        assert cli.ok("consume", "orders", "--partition", "0", "--from", "2") == "three\n"
