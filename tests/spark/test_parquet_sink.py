"""Folders of Parquet: versions, what is left of failed tries, and two writers at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.sink_targets import ParquetTarget

from penstock.errors import FormatError, NotFoundError
from penstock.spark import ParquetSink, read_manifest
from penstock.spark.durable_files import DurableFolder
from penstock.spark.sinks import parquet_manifest
from penstock.spark.sinks.parquet_manifest import Marker, PartFile, Version

MARKS = {"q/s": Marker(0, "try")}


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, 1)


def data_files(folder: Path) -> set[Path]:
    return {path for path in (folder / "data").rglob("*") if path.is_file()}


def named_files(folder: Path) -> set[Path]:
    return {Path(name.removeprefix("file://")) for name in read_manifest(str(folder)).files}


def test_every_version_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    target = ParquetTarget(tmp_path)
    for batch in range(3):
        target.sink().write(numbers(spark, batch + 1), batch, "query")
    assert [len(target.rows_at(version)) for version in (1, 2, 3)] == [1, 3, 6]
    assert spark.read.parquet(*read_manifest(str(target.path)).files).count() == 6
    with pytest.raises(NotFoundError, match="there is no version 4"):
        target.rows_at(4)
    with pytest.raises(NotFoundError, match="nothing has been written yet"):
        read_manifest(str(tmp_path / "nothing"))


def test_what_failed_tries_leave_is_seen_by_nobody_and_removed(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = ParquetSink(tmp_path, token=iter(["dead", "live", "late"]).__next__)

    def die(*args: object) -> bool:
        raise RuntimeError("killed before the commit")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_manifest, "commit", die)
        with pytest.raises(RuntimeError):
            sink.write(numbers(spark, 5), 0, "query")
    assert [path.parent.name for path in data_files(tmp_path)] == ["dead"]
    sink.write(numbers(spark, 5), 0, "query")
    assert data_files(tmp_path) == named_files(tmp_path)
    # A straggler, and a process that died between its commit and the end of it.
    (scratch := next(iter(named_files(tmp_path))).with_name("version.json")).write_bytes(b"{}")
    (late := scratch.parents[1] / "late" / "x.parquet").parent.mkdir()
    late.write_bytes(b"PAR1")
    sink.write(numbers(spark, 5), 0, "query")
    assert data_files(tmp_path) == named_files(tmp_path)


def test_who_loses_a_version_takes_the_next(spark: SparkSession, tmp_path: Path) -> None:
    """Two queries write to one folder; one has not seen what the other has done."""
    first, second = ParquetSink(tmp_path), ParquetSink(tmp_path)
    first.write(numbers(spark, 1), 0, "first")
    second.write(numbers(spark, 2), 0, "second")

    real = parquet_manifest.commit

    def overtaken(*args: object) -> bool:
        patch.setattr(parquet_manifest, "commit", real)
        second.write(numbers(spark, 4), 1, "second")
        return real(*args)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_manifest, "commit", overtaken)
        first.write(numbers(spark, 8), 1, "first")
    assert [read_manifest(str(tmp_path), version).rows for version in (1, 2, 3, 4)] == [1, 3, 7, 15]


@pytest.mark.parametrize("address", ["{}", "memory://{}"])
def test_many_versions(tmp_path: Path, address: str) -> None:
    """Of which every 64th names all files, on a local disk and in a store that is none."""
    folder = address.format(tmp_path)
    store = DurableFolder(folder)
    for number in range(1, 131):
        part = PartFile(f"data/{number}", number, 1)
        version = Version(number, "{}", MARKS, (part,), None)
        assert parquet_manifest.commit(store, version, "scratch")
        assert not parquet_manifest.commit(store, version, "scratch")
    for number in (1, 63, 64, 65, 127, 128, 130):
        found = read_manifest(folder, number)
        assert [name.rpartition("/")[2] for name in found.files] == [
            str(one) for one in range(1, number + 1)
        ]
        assert found.rows == sum(range(number + 1))
    assert parquet_manifest.newest(store, parquet_manifest.load(store, 5)).number == 130
    assert parquet_manifest.load(store, 128).all is not None


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    store = DurableFolder(str(tmp_path))
    assert parquet_manifest.commit(store, Version(1, "{}", MARKS, (), None), "scratch")
    path = next((tmp_path / "_penstock").iterdir())
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(FormatError, match="newer Penstock"):
        read_manifest(str(tmp_path))
