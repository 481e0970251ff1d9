"""A server that may open no further file: what it acknowledges is on disk, and it goes on by itself."""

from __future__ import annotations

import itertools
import resource
from pathlib import Path

import pytest
from kafka.protocol.admin import DeleteTopicsRequest
from tests.clients.contract import Code, Record, Refused
from tests.clients.wire import Wire
from tests.support.serving import Serving, serving

RECORD = Record(bytes(1000))


def leave(broker: Serving, count: int) -> None:
    """Let it open so many more files at the same time."""
    pid = broker.process.pid
    used = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
    free = (number for number in itertools.count() if number not in used)
    limit = next(itertools.islice(free, count, None))
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, hard))


def test_the_last_one_goes_to_a_new_segment_and_its_name_is_durable_all_the_same(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as broker, Wire(broker.bootstrap) as wire:
        wire.create_topic("orders", configs={"segment.bytes": "1500"})
        wire.write("orders", [RECORD])
        leave(broker, 1)
        wire.write("orders", [RECORD])
        with pytest.raises(Refused) as refusal:
            wire.write("orders", [RECORD])
        assert refusal.value.code == Code.KAFKA_STORAGE_ERROR
        leave(broker, 100)
        assert wire.write("orders", [RECORD]) == 2
        assert "offline" not in broker.stderr
        broker.kill()
    with serving(tmp_path) as broker, Wire(broker.bootstrap) as wire:
        assert len(wire.stored("orders")) == 3


def test_topics_can_be_deleted_without_one(tmp_path: Path) -> None:
    with serving(tmp_path) as broker, Wire(broker.bootstrap) as wire:
        for name in ("old", "orders"):
            wire.create_topic(name)
            wire.write(name, [RECORD])
        assert broker.terminate() == 0
    with serving(tmp_path) as broker, Wire(broker.bootstrap) as wire:
        wire.write(
            "orders", [RECORD]
        )  # nothing of the other one is open, and nothing is given back
        leave(broker, 0)
        answer = wire.call(DeleteTopicsRequest(topic_names=["old"], timeout_ms=5000), 3)
        assert [one.error_code for one in answer.responses] == [Code.NONE]
        wire.write("orders", [RECORD])
        leave(broker, 100)
        assert broker.terminate() == 0
        assert "offline" not in broker.stderr
    assert not (tmp_path / "data/topics/old-0").exists()
    with serving(tmp_path) as broker, Wire(broker.bootstrap) as wire:
        assert len(wire.stored("orders")) == 3
