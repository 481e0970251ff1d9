"""OffsetCommit as it is parsed by hand, beside kafka-python's codec."""

from __future__ import annotations

from uuid import UUID

import pytest
from kafka.protocol.consumer import OffsetCommitRequest

from penstock.wire.errors import MalformedRequestError
from penstock.wire.requests import parse_offset_commit

VERSIONS = range(2, 11)
TOPIC_ID = UUID(int=77)


def body(version: int) -> bytes:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition
    topics = [
        topic(
            name=name,
            topic_id=TOPIC_ID,
            partitions=[
                partition(
                    partition_index=number,
                    committed_offset=2**40 + number,
                    committed_leader_epoch=number,
                    committed_metadata=metadata,
                )
                for number, metadata in enumerate((None, "", "gr\u00fc\u00dfe"))
            ],
        )
        for name in ("orders", "prices")
    ]
    request = OffsetCommitRequest(
        group_id="crew",
        generation_id_or_member_epoch=5,
        member_id="one",
        group_instance_id="static" if version >= 7 else None,
        topics=topics,
    )
    return bytes(request.encode(version=version))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_read(version: int) -> None:
    request = parse_offset_commit(memoryview(b"head" + body(version)), version, 4)
    assert (request.group, request.generation, request.member) == ("crew", 5, "one")
    assert request.instance == ("static" if version >= 7 else None)
    names = [(key.name, key.id) for key, _ in request.topics]
    by_id = version >= 10
    assert names == ([("", TOPIC_ID)] * 2 if by_id else [("orders", None), ("prices", None)])
    for _, commits in request.topics:
        assert [c.number for c in commits] == [0, 1, 2]
        assert [c.offset for c in commits] == [2**40, 2**40 + 1, 2**40 + 2]
        assert [c.leader_epoch for c in commits] == ([0, 1, 2] if version >= 6 else [-1] * 3)
        assert [c.metadata for c in commits] == [None, "", "gr\u00fc\u00dfe"]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_ends_early_is_malformed(version: int) -> None:
    whole = body(version)
    for size in range(len(whole)):
        with pytest.raises(MalformedRequestError):
            parse_offset_commit(memoryview(whole[:size]), version)


def test_null_and_other_alphabets_are_malformed() -> None:
    for group in (b"\xff\xff", b"\x00\x02\xff\xfe"):
        with pytest.raises(MalformedRequestError):
            parse_offset_commit(memoryview(group + bytes(100)), 2)
