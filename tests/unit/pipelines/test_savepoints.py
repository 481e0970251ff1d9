"""Savepoints: complete or not there, wherever it crashes; and back to one without losing a batch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConflictError, NotFoundError, UsageError
from penstock.files import OsFiles
from penstock.pipelines.folder import PipelineFolder, Query
from penstock.pipelines.savepoints import go_back, savepoints, take

FILES = OsFiles()


class Crash(Exception):
    """The process dies here."""


class Crashing:
    """The disk, until so many calls that change or sync something have been made."""

    def __init__(self, calls: int) -> None:
        self._left = calls

    def __getattr__(self, name: str) -> Any:
        real = getattr(FILES, name)
        if name in ("exists", "list"):
            return real

        def call(*args: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise Crash(name)
            return real(*args, **named)

        return call


def checkpoint(folder: Path, identity: str, batches: int) -> None:
    """One with so many finished batches, and state of the last."""
    for part in ("offsets", "commits", "state-of-penstock/totals"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": identity}))
    for batch in range(batches):
        (folder / "offsets" / str(batch)).write_text(f"offsets {batch}")
        (folder / "commits" / str(batch)).write_text("{}")
    (folder / "state-of-penstock" / "totals" / "0").write_text(f"state of {batches}")


def content(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


@pytest.fixture
def folder(tmp_path: Path) -> PipelineFolder:
    """A stopped pipeline with two queries."""
    kept = PipelineFolder(FILES, tmp_path, "shop")
    places = {name: kept.checkpoints / name for name in ("one", "two")}
    for name, place in places.items():
        checkpoint(place, f"id-{name}", 3)
    kept.write_queries({name: Query(f"id-{name}", str(at)) for name, at in places.items()})
    return kept


def test_back_without_a_batch_in_between_keeps_the_id(folder: PipelineFolder) -> None:
    before = content(folder.checkpoints)
    take(FILES, folder, "first", 5)
    assert go_back(FILES, folder, "first", 6) == []
    assert content(folder.checkpoints) == before


def test_back_over_batches_has_a_new_id_so_that_sinks_skip_nothing(folder: PipelineFolder) -> None:
    before = content(folder.checkpoints)
    take(FILES, folder, "first", 5)
    checkpoint(folder.checkpoints / "one", "id-one", 7)
    later = content(folder.checkpoints)
    assert go_back(FILES, folder, "first", 6) == ["one"]
    after = content(folder.checkpoints)
    assert json.loads(after.pop("one/metadata"))["id"] != "id-one"
    before.pop("one/metadata")
    assert after == before
    # And forward again: where it was is a savepoint too.
    assert [one.label for one in savepoints(FILES, folder)] == ["first", "before-first-6"]
    assert content(folder.savepoints / "before-first-6" / "0")["offsets/6"] == "offsets 6"
    go_back(FILES, folder, "before-first-6", 7)
    restored = content(folder.checkpoints)
    assert {k: v for k, v in restored.items() if "metadata" not in k} == {
        k: v for k, v in later.items() if "metadata" not in k
    }


def test_a_savepoint_is_complete_or_not_there_wherever_it_crashes(folder: PipelineFolder) -> None:
    expected = content(folder.checkpoints / "one")
    for calls in range(100):
        try:
            take(Crashing(calls), folder, "first", 5)
        except Crash:
            for found in savepoints(FILES, folder):
                # Only its name may not have been synced: what has it is whole.
                assert content(folder.savepoints / found.label / "0") == expected
                shutil.rmtree(folder.savepoints / found.label)
        else:
            break
    assert calls > 3
    assert [one.label for one in savepoints(FILES, folder)] == ["first"]


def test_nothing_runs_between_two_savepoints(folder: PipelineFolder) -> None:
    take(FILES, folder, "first", 5)
    kept = content(folder.savepoints / "first" / "0")
    crashes = 0
    for calls in range(200):
        for name in ("one", "two"):
            checkpoint(folder.checkpoints / name, f"id-{name}", 7)
        crashing = PipelineFolder(Crashing(calls), folder.path.parent, "shop")
        try:
            go_back(Crashing(calls), crashing, "first", 1_000 + calls)
        except Crash:
            crashes += 1
            states = [content(folder.checkpoints / name) for name in ("one", "two")]
            if any("offsets/6" not in state for state in states):
                with pytest.raises(ConflictError, match="restart-from shop first"):
                    folder.check_can_run("cannot run")
            go_back(FILES, folder, "first", 10_000 + calls)
        else:
            break
        folder.check_can_run("cannot run")
        now = content(folder.checkpoints / "one")
        assert {**now, "metadata": ""} == {**kept, "metadata": ""}
    assert crashes > 5


def test_who_goes_back_twice_never_gets_the_old_id_again(folder: PipelineFolder) -> None:
    for name in ("one", "two"):
        checkpoint(folder.checkpoints / name, f"id-{name}", 5)
    take(FILES, folder, "first", 5)
    for name in ("one", "two"):
        checkpoint(folder.checkpoints / name, f"id-{name}", 7)  # sinks have these batches by now
    ids = set()
    for time_ms in (1_000, 2_000):
        go_back(FILES, folder, "first", time_ms)
        ids.add(content(folder.checkpoints / "one")["metadata"])
    assert len(ids) == 2
    assert not any("id-one" in one for one in ids)


def test_refusals(folder: PipelineFolder) -> None:
    take(FILES, folder, "first", 5)
    with pytest.raises(ConflictError, match="there is one of that name"):
        take(FILES, folder, "first", 6)
    with pytest.raises(UsageError, match="cannot be a name"):
        take(FILES, folder, "../first", 6)
    with pytest.raises(NotFoundError, match="there is no such savepoint"):
        go_back(FILES, folder, "second", 6)
    folder.write_queries({"far": Query("id", "s3a://shop/far")})
    with pytest.raises(UsageError, match="tools of its store"):
        take(FILES, folder, "second", 6)
    folder.write_queries({})
    with pytest.raises(UsageError, match="run the pipeline first"):
        take(FILES, folder, "second", 6)
