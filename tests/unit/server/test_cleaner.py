"""The process that compacts, as the broker starts it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.log.cleaning import Cleaned, Failed, Finished, Plan, Report
from penstock.record.encode import NewRecord, encode
from penstock.server.cleaner import CleanerProcess, Throttle


def partition(folder: Path) -> Plan:
    """Ten times the same key, in one sealed segment."""
    log = bytearray()
    for offset in range(10):
        batch = encode([NewRecord(b"%d" % offset, b"k")])
        batch[:8] = offset.to_bytes(8, "big")
        log += batch
    (folder / f"{0:020d}.log").write_bytes(log)
    return Plan(
        folder=str(folder),
        groups=[[0]],
        sizes=[len(log)],
        end=10,
        dirty=0,
        needed=[],
        aborted=[],
        fences=[],
        now=0,
        delete_retention_ms=0,
        index_interval=4096,
        free_bytes_min=0,
    )


async def reports_of(plan: Plan) -> list[Report]:
    cleaner = CleanerProcess(asyncio.get_running_loop())
    found: list[Report] = []
    over = asyncio.Event()

    def report(one: Report) -> None:
        found.append(one)
        if not isinstance(one, Cleaned):
            over.set()

    cleaner.start(plan, report)
    await asyncio.wait_for(over.wait(), 60)
    await cleaner.stop()
    return found


@pytest.mark.parametrize(
    ("name", "value"),
    [("_LINE_BYTES_MAX", 16), ("_KINDS", {})],
    ids=["too long", "unknown"],
)
def test_a_report_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    """It ends the pass, and the next one can begin."""
    monkeypatch.setattr(f"penstock.server.cleaner.{name}", value)

    async def twice() -> None:
        for _ in range(2):
            [failed] = await reports_of(partition(tmp_path))
            assert isinstance(failed, Failed)
            assert "cannot be read" in failed.cause

    asyncio.run(twice())


def test_a_pass(tmp_path: Path) -> None:
    cleaned, finished = asyncio.run(reports_of(partition(tmp_path)))
    assert isinstance(cleaned, Cleaned)
    assert (cleaned.bases, cleaned.end, cleaned.batches) == ([0], 10, 2)
    assert finished == Finished(10, None)
    assert (tmp_path / f"{0:020d}.log.cleaned").stat().st_size == cleaned.size


def test_what_goes_wrong_is_reported(tmp_path: Path) -> None:
    plan = partition(tmp_path)
    (tmp_path / f"{0:020d}.log").unlink()
    (failed,) = asyncio.run(reports_of(plan))
    assert isinstance(failed, Failed)
    assert "No such file" in failed.cause


def test_a_pass_that_is_stopped_reports_nothing_more(tmp_path: Path) -> None:
    async def stop_at_once() -> list[Report]:
        cleaner = CleanerProcess(asyncio.get_running_loop())
        found: list[Report] = []
        cleaner.start(partition(tmp_path), found.append)
        await asyncio.sleep(0.01)
        await cleaner.stop()
        return found

    assert asyncio.run(stop_at_once()) == []


def test_it_goes_when_the_broker_goes(tmp_path: Path) -> None:
    """A throttled pass would go on for hours; the end of its input ends it."""
    plan = partition(tmp_path)
    command = [
        sys.executable,
        "-c",
        "from penstock.server import cleaner; cleaner.COMPACTION_BYTES_PER_SECOND = 1; cleaner.main()",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(["Plan", plan]).encode() + b"\n")
        process.stdin.close()
        assert process.wait(30) == 1


def test_the_throttle_lets_pass_what_it_says() -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    throttle = Throttle(1000, lambda: clock[0], sleep)
    for _ in range(100):
        throttle.passed(100)
    assert 9.9 < clock[0] < 10.1
    clock[0] += 100
    throttle.passed(1000)
    assert 110.9 < clock[0] < 111.2, "time that was not used is not saved up"
