"""What Spark's checkpoint says of a batch: how far it goes, and what time it is."""

from __future__ import annotations

from pathlib import Path

from penstock.spark.batch import position_at, watermark_at


def checkpoint(folder: Path, *offsets: str) -> str:
    """A checkpoint as Spark writes it: a version, its own metadata, and a line for each source."""
    (folder / "offsets").mkdir()
    (folder / "offsets/3").write_text("\n".join(["v1", '{"batchWatermarkMs":0}', *offsets]))
    return str(folder)


def test_the_ends_of_all_sources(tmp_path: Path) -> None:
    found = checkpoint(
        tmp_path,
        '{"orders": {"0": 5, "1": 7}, "$time": {"watermark": 900, "idle": {"0": 1}}}',
        '{"orders": {"0": 4, "1": 9}, "payments": {"0": 1}, "$time": {"watermark": 800}}',
        "-",  # a source that has said nothing yet
        "42",  # and one of another kind
        '{"seconds": 7}',
    )
    assert position_at(found, 3) == {"orders": {"0": 4, "1": 7}, "payments": {"0": 1}}
    assert watermark_at(found, 3) == 800


def test_a_source_without_time(tmp_path: Path) -> None:
    assert watermark_at(checkpoint(tmp_path, '{"orders": {"0": 5}}'), 3) is None
