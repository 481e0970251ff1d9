"""Data folders of every version of the format that ever was still open, with all that is in them.

The folders in tests/contract/data were made by tools/make_format_fixture.py of the Penstock that
introduced the version, together with a list of what was stored. They are copied, never written to.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.metadata import MetadataRequest
from tests.clients.admin_requests import describe_configs, init_producer_id
from tests.clients.contract import CODECS, Code
from tests.clients.wire import EARLIEST, LATEST, Wire
from tools import make_format_fixture

from penstock.cli.main import run
from penstock.errors import FormatError
from penstock.limits import PRODUCER_BATCHES_KEPT
from penstock.log.store import FORMAT_VERSION
from penstock.record.batch import parse
from penstock.record.decode import Record, decode
from penstock.record.encode import NewRecord, encode
from penstock.testing import broker

DATA = Path(__file__).parent / "data"
FOLDERS = sorted(path.name for path in DATA.iterdir() if path.is_dir())
CONFIG_OF_THE_TOPIC = 1


@dataclass(frozen=True)
class Kept:
    """A copy of a kept folder, and what must be in it."""

    folder: Path
    original: Path
    topics: dict[str, dict[str, Any]]
    records: list[dict[str, Any]]
    batches: list[dict[str, Any]]

    @property
    def crashed(self) -> bool:
        return self.original.name.endswith("-crashed")

    @property
    def spots(self) -> list[tuple[str, int]]:
        return [
            (name, n) for name, topic in self.topics.items() for n in range(len(topic["starts"]))
        ]


@pytest.fixture(params=FOLDERS)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    original = DATA / request.param
    shutil.copytree(original, tmp_path / "data")
    manifest = DATA / f"{request.param.removesuffix('-crashed')}.jsonl"
    facts = [json.loads(line) for line in manifest.read_text().splitlines()]
    return Kept(
        tmp_path / "data",
        original,
        {fact["topic"]: fact for fact in facts if "topic" in fact},
        [fact for fact in facts if "of" in fact],
        [fact for fact in facts if "batch_of" in fact],
    )


def test_every_version_is_kept() -> None:
    expected = {f"format-{version}" for version in range(1, FORMAT_VERSION + 1)}
    assert set(FOLDERS) == expected | {f"{name}-crashed" for name in expected}


def test_they_hold_what_they_were_made_to_hold(kept: Kept) -> None:
    """A kept folder without sealed segments or a torn tail would prove little."""
    assert (kept.original / "clean").exists() != kept.crashed
    assert json.loads((kept.original / "format.json").read_text())["format"] <= FORMAT_VERSION
    segments = list((kept.original / "topics" / "idempotent-0").glob("*.log"))
    assert len(segments) >= 3
    assert {record["codec"] for record in kept.records} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert {topic["starts"][0] for topic in kept.topics.values()} > {0}
    assert sum(path.stat().st_size for path in kept.original.rglob("*")) < 500_000


# -- what is stored


def test_every_record_is_there(kept: Kept) -> None:
    expected: defaultdict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for record in kept.records:
        expected[record["of"], record["partition"]].append(record)
    with broker(kept.folder) as running, Wire(running.bootstrap) as wire:
        for topic, partition in kept.spots:
            start = kept.topics[topic]["starts"][partition]
            found = [one for one in stored(wire, topic, partition) if one["offset"] >= start]
            assert found == expected[topic, partition]


def stored(wire: Wire, topic: str, partition: int) -> list[dict[str, Any]]:
    """Every record, told as the list of what was stored tells it."""
    position, end = (wire.offset(topic, when, partition) for when in (EARLIEST, LATEST))
    found: list[dict[str, Any]] = []
    while position < end:
        data = wire.fetch(topic, position, partition=partition).records
        # Our own decoder: kafka-python's needs libraries for most codecs.
        while data:
            header = parse(data)
            common = {
                "of": topic,
                "partition": partition,
                "codec": CODECS[header.codec],
                "producer": header.producer_id,
            }
            found += [common | _described(record) for record in decode(data)]
            position = found[-1]["offset"] + 1
            data = data[header.size :]
    return found


def _described(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def test_offsets_are_where_they_were(kept: Kept) -> None:
    with broker(kept.folder) as running, Wire(running.bootstrap) as wire:
        for topic, partition in kept.spots:
            here = [r for r in kept.records if (r["of"], r["partition"]) == (topic, partition)]
            start = kept.topics[topic]["starts"][partition]
            assert wire.offset(topic, EARLIEST, partition) == start
            assert wire.offset(topic, LATEST, partition) == start + len(here)
            for record in here:
                # The first record of that time or later, found by the time index.
                found = next(r for r in here if r["timestamp"] >= record["timestamp"])
                assert wire.offset(topic, record["timestamp"], partition) == found["offset"]


def test_topics_are_who_they_were(kept: Kept) -> None:
    with broker(kept.folder) as running, Wire(running.bootstrap) as wire:
        answer = wire.call(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        assert (
            answer.cluster_id
            == json.loads((kept.original / "format.json").read_text())["cluster_id"]
        )
        assert {one.name for one in answer.topics} == set(kept.topics)
        for topic in answer.topics:
            assert len(topic.partitions) == len(kept.topics[topic.name]["starts"])
            identity = kept.original / "topics" / f"{topic.name}-0" / "topic.json"
            assert UUID(json.loads(identity.read_text().splitlines()[0])["id"]) == topic.topic_id
            (described,) = wire.call(describe_configs(topic.name)).results
            overrides = {
                one.name: one.value
                for one in described.configs
                if one.config_source == CONFIG_OF_THE_TOPIC
            }
            assert overrides == kept.topics[topic.name]["config"]


# -- producers


def resend(wire: Wire, batch: dict[str, Any], *, later: int = 0) -> tuple[int, int]:
    """Send a batch as its producer did, or one that comes later; error code and offset."""
    data = encode(
        [NewRecord(value.encode(), timestamp=batch["timestamp"]) for value in batch["values"]],
        producer_id=batch["producer_id"],
        producer_epoch=batch["producer_epoch"],
        base_sequence=batch["base_sequence"] + later,
    )
    answer = wire.append(batch["batch_of"], bytes(data))
    return int(answer.error_code), int(answer.base_offset)


def test_a_retry_of_a_stored_batch_is_recognised(kept: Kept) -> None:
    with broker(kept.folder) as running, Wire(running.bootstrap) as wire:
        for producer in {batch["producer_id"] for batch in kept.batches}:
            written = [batch for batch in kept.batches if batch["producer_id"] == producer]
            assert len(written) > PRODUCER_BATCHES_KEPT
            end = wire.offset(written[0]["batch_of"], LATEST)
            for batch in written[-PRODUCER_BATCHES_KEPT:]:
                assert resend(wire, batch) == (Code.NONE, batch["offset"])
            last = written[-1]
            step = len(last["values"])
            code, _ = resend(wire, last, later=2 * step)
            assert code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert wire.offset(last["batch_of"], LATEST) == end
            assert resend(wire, last, later=step) == (Code.NONE, end)


def test_ids_of_producers_are_not_given_out_again(kept: Kept) -> None:
    with broker(kept.folder) as running, Wire(running.bootstrap) as wire:
        answer = wire.call(init_producer_id())
        assert answer.error_code == Code.NONE
        assert answer.producer_id > max(batch["producer_id"] for batch in kept.batches)


# -- the files


def test_what_was_torn_is_put_aside_and_nothing_else_changes(kept: Kept) -> None:
    before = {path.relative_to(kept.original): path for path in kept.original.rglob("*.log")}
    with broker(kept.folder):
        pass
    changed = {
        name: path.read_bytes()
        for name, path in before.items()
        if (kept.folder / name).read_bytes() != path.read_bytes()
    }
    aside = sorted((kept.folder / "quarantine").glob("*"))
    if not kept.crashed:
        assert not changed
        assert not aside
        return
    (tail,) = aside
    ((name, content),) = changed.items()
    assert name.parent.name == "idempotent-0"
    assert content == (kept.folder / name).read_bytes() + tail.read_bytes()


def test_it_can_be_written_and_opened_again(kept: Kept) -> None:
    value = "of the present version"
    data = bytes(encode([NewRecord(value.encode(), timestamp=1_700_000_100_000)]))
    ends: dict[tuple[str, int], int] = {}
    with broker(kept.folder) as running, Wire(running.bootstrap) as wire:
        for topic, partition in kept.spots:
            answer = wire.append(topic, data, partition=partition)
            assert answer.error_code == Code.NONE
            ends[topic, partition] = answer.base_offset
    assert run(["log", "verify", str(kept.folder)]) == 0
    with broker(kept.folder) as running, Wire(running.bootstrap) as wire:
        for (topic, partition), offset in ends.items():
            last = stored(wire, topic, partition)[-1]
            assert (last["offset"], last["value"]) == (offset, value)


# -- versions


def test_a_newer_version_is_refused_and_left_alone(kept: Kept) -> None:
    newer = {"format": FORMAT_VERSION + 1, "cluster_id": base64.b64encode(b"x" * 16).decode()}
    (kept.folder / "format.json").write_text(json.dumps(newer))
    before = {path: path.read_bytes() for path in kept.folder.rglob("*") if path.is_file()}
    with pytest.raises(FormatError) as refused, broker(kept.folder):
        pass
    assert f"format {FORMAT_VERSION + 1} " in str(refused.value)
    assert f"knows {FORMAT_VERSION};" in str(refused.value)
    after = {path: path.read_bytes() for path in kept.folder.rglob("*") if path.is_file()}
    after.pop(kept.folder / "lock", None)
    assert after == before


def test_the_tool_makes_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise there would be no tool when the next version needs it."""
    make_format_fixture.make(tmp_path)
    kept = (DATA / f"format-{FORMAT_VERSION}.jsonl").read_text()
    assert (tmp_path / f"format-{FORMAT_VERSION}.jsonl").read_text() == kept
    monkeypatch.setattr("sys.argv", ["make", str(tmp_path)])
    assert make_format_fixture.main() == 1
    assert "made once" in capsys.readouterr().out
