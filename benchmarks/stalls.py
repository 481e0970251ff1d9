"""How long everybody else waits while one client sends the largest requests that are allowed.

Each is sent once. Meanwhile one client asks for the versions over and over, and another writes a record
every few milliseconds: the longest wait of each is what a stall of the loop costs its neighbours. The
last lines hold what the first of them waited, in parts of a tenth of a second; a writer also waits for
the disk.
"""

from __future__ import annotations

import argparse
import gc
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kafka.protocol import admin, consumer, metadata, producer
from tests.clients.contract import Record
from tests.clients.wire import NAMED_PRODUCE, Wire, build_batch, fetch_request, produce_request

from benchmarks.brokers import running_penstock
from benchmarks.report import Better, Verdict, conclude, preamble
from penstock.limits import REQUEST_BYTES_MAX
from penstock.wire.consumer_group_messages import ConsumerGroupHeartbeatRequest

PROBE_SECONDS = 0.001
WRITE_SECONDS = 0.005
ANSWER_SECONDS_MAX = 120.0
WAIT_SECONDS_MAX = 0.1
HEADER_BYTES = 64
TIMEOUT_MS = 60_000


class Probe:
    """Somebody who sends one frame over and over, and remembers the longest wait for an answer."""

    def __init__(self, bootstrap: str, frame: bytes, pause: float) -> None:
        self._wire = Wire(bootstrap, timeout=ANSWER_SECONDS_MAX)
        self._frame = frame
        self._pause = pause
        self.longest = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        while not self._stop.wait(self._pause):
            started = time.perf_counter()
            self._wire.socket.sendall(self._frame)
            answer(self._wire)
            self.longest = max(self.longest, time.perf_counter() - started)

    def stop(self) -> None:
        """End; the longest wait is known then."""
        self._stop.set()
        self._thread.join()
        self._wire.socket.close()


def answer(wire: Wire) -> int:
    """Take one answer; its size."""
    (size,) = struct.unpack(">i", wire.exactly(4))
    wire.exactly(size)
    return int(size)


def frame(request: Any, version: int) -> bytes:
    """A request as it is sent."""
    request.API_VERSION = version
    request.with_header(correlation_id=1, client_id="stalls")
    return bytes(request.encode(header=True, framed=True))


def names(size: int, each: int, extra: int) -> list[str]:
    """Different names of so many characters, as many as fit when each costs some bytes more."""
    count = (size - HEADER_BYTES) // (each + extra)
    return [f"{number:0{each}d}" for number in range(count)]


# -- the requests


def metadata_names(size: int) -> bytes:
    """Topics that do not exist, by name."""
    topic = metadata.MetadataRequest.MetadataRequestTopic
    return frame(
        metadata.MetadataRequest(
            topics=[topic(name=name) for name in names(size, 12, 2)],
            allow_auto_topic_creation=False,
        ),
        8,
    )


def metadata_all(_: int) -> bytes:
    """Every topic there is."""
    return frame(metadata.MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)


def find_coordinators(size: int) -> bytes:
    """Coordinators of many groups."""
    keys = names(size, 6, 1)
    return frame(metadata.FindCoordinatorRequest(key_type=0, coordinator_keys=keys), 4)


def describe_topic_partitions(size: int) -> bytes:
    """Topics that do not exist."""
    topic = admin.DescribeTopicPartitionsRequest.TopicRequest
    return frame(
        admin.DescribeTopicPartitionsRequest(
            topics=[topic(name=name) for name in names(size, 6, 2)],
            response_partition_limit=2000,
            cursor=None,
        ),
        0,
    )


def describe_groups(size: int) -> bytes:
    """Groups that do not exist."""
    wanted = names(size, 6, 2)
    return frame(admin.DescribeGroupsRequest(groups=wanted), 4)


def delete_groups(size: int) -> bytes:
    """Groups that do not exist."""
    return frame(admin.DeleteGroupsRequest(groups_names=names(size, 6, 2)), 1)


def _create_topics(size: int, *, validate_only: bool) -> bytes:
    topic = admin.CreateTopicsRequest.CreatableTopic
    return frame(
        admin.CreateTopicsRequest(
            topics=[
                topic(name=n, num_partitions=1, replication_factor=1, assignments=[], configs=[])
                for n in names(size, 10, 16)
            ],
            timeout_ms=TIMEOUT_MS,
            validate_only=validate_only,
        ),
        5,
    )


def validate_topics(size: int) -> bytes:
    """Topics that could be made."""
    return _create_topics(size, validate_only=True)


def create_topics(_: int) -> bytes:
    """Topics that are made: 2,000, each with a folder."""
    return _create_topics(2000 * 26 + HEADER_BYTES, validate_only=False)


def delete_topics(size: int) -> bytes:
    """Topics that do not exist."""
    return frame(admin.DeleteTopicsRequest(topic_names=names(size, 6, 2), timeout_ms=TIMEOUT_MS), 3)


def create_partitions(size: int) -> bytes:
    """Partitions for topics that do not exist."""
    topic = admin.CreatePartitionsRequest.CreatePartitionsTopic
    return frame(
        admin.CreatePartitionsRequest(
            topics=[topic(name=n, count=2, assignments=None) for n in names(size, 6, 10)],
            timeout_ms=TIMEOUT_MS,
            validate_only=True,
        ),
        1,
    )


def list_offsets(size: int) -> bytes:
    """Partitions that do not exist."""
    topic = consumer.ListOffsetsRequest.ListOffsetsTopic
    item = topic.ListOffsetsPartition
    wanted = [
        item(partition_index=number, current_leader_epoch=-1, timestamp=-1)
        for number in range((size - HEADER_BYTES) // 12)
    ]
    return frame(
        consumer.ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[topic(name="load", partitions=wanted)]
        ),
        2,
    )


def epochs(size: int) -> bytes:
    """Epochs of partitions that do not exist."""
    topic = consumer.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    item = topic.OffsetForLeaderPartition
    wanted = [
        item(partition=number, current_leader_epoch=-1, leader_epoch=0)
        for number in range((size - HEADER_BYTES) // 12)
    ]
    return frame(
        consumer.OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[topic(topic="load", partitions=wanted)]
        ),
        3,
    )


def offset_fetch(size: int) -> bytes:
    """Offsets that nobody committed."""
    topic = consumer.OffsetFetchRequest.OffsetFetchRequestTopic
    numbers = list(range((size - HEADER_BYTES) // 4))
    return frame(
        consumer.OffsetFetchRequest(
            group_id="g", topics=[topic(name="load", partition_indexes=numbers)]
        ),
        5,
    )


def offset_fetch_groups(size: int) -> bytes:
    """Groups that do not exist."""
    group = consumer.OffsetFetchRequest.OffsetFetchRequestGroup
    return frame(
        consumer.OffsetFetchRequest(
            groups=[group(group_id=n, topics=None) for n in names(size, 6, 3)],
            require_stable=False,
        ),
        8,
    )


def offset_commit(size: int) -> bytes:
    """Offsets of partitions that do not exist."""
    topic = consumer.OffsetCommitRequest.OffsetCommitRequestTopic
    item = topic.OffsetCommitRequestPartition
    wanted = [
        item(
            partition_index=n, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
        )
        for n in range((size - HEADER_BYTES) // 18)
    ]
    return frame(
        consumer.OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[topic(name="load", partitions=wanted)],
        ),
        6,
    )


def offset_delete(size: int) -> bytes:
    """Offsets of a group that does not exist."""
    topic = consumer.OffsetDeleteRequest.OffsetDeleteRequestTopic
    item = topic.OffsetDeleteRequestPartition
    wanted = [item(partition_index=n) for n in range((size - HEADER_BYTES) // 4)]
    return frame(
        consumer.OffsetDeleteRequest(group_id="g", topics=[topic(name="load", partitions=wanted)]),
        0,
    )


def describe_configs(size: int) -> bytes:
    """Settings of groups, which need not exist to have them."""
    resource = admin.DescribeConfigsRequest.DescribeConfigsResource
    return frame(
        admin.DescribeConfigsRequest(
            resources=[
                resource(resource_type=32, resource_name=n, configuration_keys=None)
                for n in names(min(size, 200_000), 6, 7)
            ],
            include_synonyms=False,
            include_documentation=False,
        ),
        3,
    )


def alter_configs(size: int) -> bytes:
    """Settings of topics that do not exist."""
    resource = admin.IncrementalAlterConfigsRequest.AlterConfigsResource
    return frame(
        admin.IncrementalAlterConfigsRequest(
            resources=[
                resource(resource_type=2, resource_name=n, configs=[]) for n in names(size, 6, 7)
            ],
            validate_only=True,
        ),
        0,
    )


def delete_records(size: int) -> bytes:
    """Records of partitions that do not exist."""
    topic = admin.DeleteRecordsRequest.DeleteRecordsTopic
    item = topic.DeleteRecordsPartition
    wanted = [item(partition_index=n + 100, offset=0) for n in range((size - HEADER_BYTES) // 12)]
    return frame(
        admin.DeleteRecordsRequest(
            topics=[topic(name="load", partitions=wanted)], timeout_ms=TIMEOUT_MS
        ),
        1,
    )


def elect_leaders(size: int) -> bytes:
    """Leaders of partitions that do not exist."""
    topic = admin.ElectLeadersRequest.TopicPartitions
    numbers = list(range((size - HEADER_BYTES) // 4))
    return frame(
        admin.ElectLeadersRequest(
            election_type=0,
            topic_partitions=[topic(topic="load", partitions=numbers)],
            timeout_ms=TIMEOUT_MS,
        ),
        1,
    )


def describe_producers(size: int) -> bytes:
    """Producers of partitions that do not exist."""
    topic = admin.DescribeProducersRequest.TopicRequest
    numbers = list(range(100, (size - HEADER_BYTES) // 4))
    return frame(
        admin.DescribeProducersRequest(topics=[topic(name="load", partition_indexes=numbers)]), 0
    )


def describe_log_dirs(size: int) -> bytes:
    """Sizes of partitions that do not exist."""
    topic = admin.DescribeLogDirsRequest.DescribableLogDirTopic
    numbers = list(range((size - HEADER_BYTES) // 4))
    return frame(admin.DescribeLogDirsRequest(topics=[topic(topic="load", partitions=numbers)]), 1)


def describe_log_dirs_all(_: int) -> bytes:
    """Sizes of every partition there is."""
    return frame(admin.DescribeLogDirsRequest(topics=None), 4)


def describe_transactions(size: int) -> bytes:
    """Transactions that do not exist."""
    return frame(admin.DescribeTransactionsRequest(transactional_ids=names(size, 6, 1)), 0)


def leave_group(size: int) -> bytes:
    """Members that do not exist."""
    member = consumer.LeaveGroupRequest.MemberIdentity
    return frame(
        consumer.LeaveGroupRequest(
            group_id="g",
            members=[member(member_id=n, group_instance_id=None) for n in names(size, 6, 4)],
        ),
        3,
    )


def join_group(size: int) -> bytes:
    """Protocols nobody knows."""
    protocol = consumer.JoinGroupRequest.JoinGroupRequestProtocol
    return frame(
        consumer.JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[protocol(name=n, metadata=b"") for n in names(size, 6, 6)],
        ),
        5,
    )


def sync_group(size: int) -> bytes:
    """Shares for members that do not exist."""
    share = consumer.SyncGroupRequest.SyncGroupRequestAssignment
    return frame(
        consumer.SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id="m",
            group_instance_id=None,
            assignments=[share(member_id=n, assignment=b"") for n in names(size, 6, 6)],
        ),
        3,
    )


def consumer_heartbeat(size: int) -> bytes:
    """A member that reads topics which do not exist."""
    return frame(
        ConsumerGroupHeartbeatRequest(
            group_id="c",
            member_id="m",
            member_epoch=0,
            instance_id=None,
            rack_id=None,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=names(size, 6, 1),
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=[],
        ),
        1,
    )


def fetch(size: int) -> bytes:
    """Partitions that do not exist."""
    count = (size - HEADER_BYTES) // 28
    offsets = dict.fromkeys(range(100, 100 + count), 0)
    return frame(fetch_request("load", offsets), 11)


def add_partitions(size: int) -> bytes:
    """Partitions for a transaction that does not exist."""
    topic = producer.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    numbers = list(range((size - HEADER_BYTES) // 4))
    return frame(
        producer.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[topic(name="load", partitions=numbers)],
        ),
        2,
    )


def txn_offset_commit(size: int) -> bytes:
    """Offsets for a transaction that does not exist."""
    topic = producer.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    item = topic.TxnOffsetCommitRequestPartition
    wanted = [
        item(
            partition_index=n, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
        )
        for n in range((size - HEADER_BYTES) // 18)
    ]
    return frame(
        producer.TxnOffsetCommitRequest(
            transactional_id="t",
            group_id="g",
            producer_id=1,
            producer_epoch=0,
            topics=[topic(name="load", partitions=wanted)],
        ),
        2,
    )


def write_markers(size: int) -> bytes:
    """Markers in partitions that do not exist."""
    marker = producer.WriteTxnMarkersRequest.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic
    numbers = list(range(100, (size - HEADER_BYTES) // 4))
    return frame(
        producer.WriteTxnMarkersRequest(
            markers=[
                marker(
                    producer_id=1,
                    producer_epoch=0,
                    transaction_result=False,
                    topics=[topic(name="load", partition_indexes=numbers)],
                    coordinator_epoch=0,
                )
            ]
        ),
        1,
    )


def alter_quotas(size: int) -> bytes:
    """Quotas, checked only."""
    entry = admin.AlterClientQuotasRequest.EntryData
    return frame(
        admin.AlterClientQuotasRequest(
            entries=[
                entry(entity=[entry.EntityData(entity_type="client-id", entity_name=n)], ops=[])
                for n in names(size, 6, 28)
            ],
            validate_only=True,
        ),
        0,
    )


REQUESTS: dict[str, Callable[[int], bytes]] = {
    build.__name__: build
    for build in (
        metadata_names,
        find_coordinators,
        describe_topic_partitions,
        describe_groups,
        delete_groups,
        validate_topics,
        delete_topics,
        create_partitions,
        list_offsets,
        epochs,
        offset_fetch,
        offset_fetch_groups,
        offset_commit,
        offset_delete,
        describe_configs,
        alter_configs,
        delete_records,
        elect_leaders,
        describe_producers,
        describe_log_dirs,
        describe_transactions,
        leave_group,
        join_group,
        sync_group,
        consumer_heartbeat,
        fetch,
        add_partitions,
        txn_offset_commit,
        write_markers,
        alter_quotas,
        create_topics,
        describe_log_dirs_all,
        metadata_all,
    )
}


def measure(bootstrap: str, build: Callable[[int], bytes], size: int) -> float:
    """One request, as large as is taken; prints how long others waited, and returns the askers' wait."""
    asked = build(size)
    wire = Wire(bootstrap, timeout=ANSWER_SECONDS_MAX)
    batch = build_batch([Record(b"x" * 100)])
    small = Probe(bootstrap, frame(metadata.ApiVersionsRequest(), 0), PROBE_SECONDS)
    written = frame(produce_request("load", {0: batch}), NAMED_PRODUCE)
    writer = Probe(bootstrap, written, WRITE_SECONDS)
    time.sleep(0.3)
    small.longest = writer.longest = 0.0
    started = time.perf_counter()
    came: int | None = None
    # A request that has too many values for its size is not answered: the connection is closed.
    with suppress(ConnectionError):
        wire.socket.sendall(asked)
        came = answer(wire)
    took = time.perf_counter() - started
    time.sleep(0.05)
    small.stop()
    writer.stop()
    wire.socket.close()
    if came is None:
        return measure(bootstrap, build, size // 2)
    print(
        f"{build.__name__:<26}{len(asked):>10,} B {came:>10,} B {took * 1000:>8.0f} ms"
        f"   others wait {small.longest * 1000:>7.1f} ms, writers {writer.longest * 1000:>7.1f} ms",
        flush=True,
    )
    return small.longest


def main() -> int:
    """Ask for everything, or for what is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("requests", nargs="*", choices=[[], *REQUESTS], help="by default all")
    parser.add_argument("--bytes", type=int, default=REQUEST_BYTES_MAX - HEADER_BYTES)
    arguments = parser.parse_args()
    wanted = arguments.requests or list(REQUESTS)
    preamble("benchmarks.stalls", Path(tempfile.gettempdir()))
    gc.disable()  # it would stop those who measure
    with tempfile.TemporaryDirectory() as folder, running_penstock(Path(folder)) as broker:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic("load")
        waits = {
            name: measure(broker.bootstrap, REQUESTS[name], arguments.bytes) for name in wanted
        }
    return conclude(
        Verdict(f"stall-{name}", wait / WAIT_SECONDS_MAX, Better.LESS, 1)
        for name, wait in waits.items()
    )


if __name__ == "__main__":
    sys.exit(main())
