"""Topics of a cluster: list, describe, create, delete, configure, grow, trim."""

from __future__ import annotations

import base64
import contextlib
import difflib
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.client.connection import admin, error_of_code, library
from penstock.client.security import OPEN, Security
from penstock.errors import (
    NotFoundError,
    OfflineError,
    PenstockError,
    UnavailableError,
    UsageError,
)

BROKER_DEFAULT = -1
"""As a number of partitions or replicas: whatever the broker is set to."""
VISIBLE_SECONDS_MAX = 10.0
_LIST_THEM = "`penstock topics list` shows those that exist"


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """What the cluster says about a topic in one line."""

    name: str
    id: str
    """In Kafka's own notation; empty where the broker knows no ids."""
    partitions: int
    replication_factor: int
    internal: bool


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition of a topic."""

    index: int
    leader: int
    """Broker id; -1 while there is none."""
    replicas: list[int]
    in_sync: list[int]
    earliest: int | None
    """First offset that is retained; None if the partition is out of service."""
    latest: int | None
    """Offset that the next record gets; None if the partition is out of service."""


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A configuration value in force, and where it comes from."""

    name: str
    value: str | None
    """None if the broker keeps it secret."""
    source: str
    """`topic` if it was set on the topic; `broker` or `default` otherwise."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """Everything about a topic."""

    summary: TopicSummary
    partitions: list[PartitionState]
    configs: list[ConfigValue]
    """Those set on the topic first, then by name."""


@dataclass(frozen=True, slots=True)
class Trim:
    """What is to be deleted of a partition: everything before an offset."""

    partition: int
    earliest: int
    """First offset that is retained now."""
    before: int
    """First offset that stays; never below `earliest` nor above `latest`."""
    latest: int

    @property
    def offsets(self) -> int:
        """How many offsets go: that many records, or fewer if there are gaps between them."""
        return self.before - self.earliest


def list_topics(bootstrap: str) -> list[TopicSummary]:
    """All topics, by name.

    Raises:
        PenstockError: the cluster could not be asked.
    """
    with admin(bootstrap, "cannot list topics") as client:
        found = [_summary(topic) for topic in client.describe_topics()]
    return sorted(found, key=lambda topic: topic.name)


def describe_topic(bootstrap: str, name: str, security: Security = OPEN) -> TopicDescription:
    """One topic with partitions, offsets and configuration.

    Raises:
        NotFoundError: there is no such topic.
        PenstockError: the cluster could not be asked.
    """
    operation = f"cannot describe topic {name}"
    with admin(bootstrap, operation, security) as client:
        return _describe(client, name, operation)


def topic_partitions(bootstrap: str, name: str, operation: str, remedy: str = "") -> list[int]:
    """The partitions of a topic.

    Args:
        bootstrap: Addresses of the cluster.
        name: The topic.
        operation: What they are needed for, for the error.
        remedy: What to do where there is no such topic, nor one of a similar name.

    Raises:
        NotFoundError: there is no such topic.
        PenstockError: the cluster could not be asked.
    """
    with admin(bootstrap, operation) as client:
        (topic,) = _existing(client, [name], operation, remedy)
    return sorted(int(one["partition_index"]) for one in topic["partitions"])


def out_of_service(bootstrap: str, name: str, operation: str) -> PenstockError | None:
    """Why a topic is not served by a cluster that answers, asked after something took too long.

    kafka-python waits for the leader of a partition until time is up, and says only that it is.

    Returns:
        The error for a topic that is gone, or for its first partition that no broker leads; None if
        the cluster serves all of it, or cannot be asked.
    """
    try:
        with admin(bootstrap, operation) as client:
            (topic,) = _existing(client, [name], operation)
    except NotFoundError as gone:
        return gone
    except PenstockError:
        return None
    idle = sorted(one["partition_index"] for one in topic["partitions"] if one["leader_id"] < 0)
    if not idle:
        return None
    cause = f"partition {idle[0]} is out of service: no broker leads it"
    remedy = "the broker's log says why; `penstock log verify DIR` shows which data is damaged"
    return OfflineError(operation, cause, remedy)


def create_topic(
    bootstrap: str,
    name: str,
    *,
    partitions: int = BROKER_DEFAULT,
    replication_factor: int = BROKER_DEFAULT,
    configs: Mapping[str, str] | None = None,
    security: Security = OPEN,
) -> TopicDescription:
    """Create a topic and return when it can be used.

    Raises:
        ConflictError: it exists.
        UsageError: the broker refuses the name, a number or a configuration value.
        PenstockError: the cluster could not be asked.
    """
    operation = f"cannot create topic {name}"
    wanted = {
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "configs": dict(configs or {}),
    }
    with admin(bootstrap, operation, security) as client:
        answer = client.create_topics({name: wanted}, raise_errors=False)
        _raise_first(operation, answer["topics"])
        client.wait_for_topics([name])
        return _describe(client, name, operation)


def planned_partitions(bootstrap: str, name: str) -> int:
    """How many partitions a topic would be created with, unless it is said.

    Raises:
        ConflictError: it exists.
        UsageError: the broker refuses the name.
        PenstockError: the cluster could not be asked.
    """
    operation = f"cannot create topic {name}"
    with admin(bootstrap, operation) as client:
        answer = client.create_topics({name: {}}, validate_only=True, raise_errors=False)
        _raise_first(operation, answer["topics"])
        return int(answer["topics"][0]["num_partitions"])


def delete_topics(bootstrap: str, names: Sequence[str]) -> None:
    """Delete topics with everything in them; nothing is deleted if one of them does not exist.

    Raises:
        NotFoundError: there is no topic of one of the names.
        PenstockError: the cluster refused or could not be asked.
    """
    operation = f"cannot delete {', '.join(names)}"
    with admin(bootstrap, operation) as client:
        _existing(client, names, operation)
        answer = client.delete_topics(list(names), raise_errors=False)
        _raise_first(operation, answer["topics"])


def configure_topic(
    bootstrap: str, name: str, *, set_values: Mapping[str, str], unset: Collection[str]
) -> TopicDescription:
    """Set and unset configuration values in one step, and return what is then in force.

    Raises:
        NotFoundError: there is no such topic.
        UsageError: the broker refuses a name or a value; nothing was changed.
        PenstockError: the cluster could not be asked.
    """
    operation = f"cannot configure topic {name}"
    changes: dict[str, tuple[str, str | None]] = {key: ("DELETE", None) for key in unset}
    changes |= {key: ("SET", value) for key, value in set_values.items()}
    with admin(bootstrap, operation) as client:
        _existing(client, [name], operation)
        known = [value.name for value in _configs(client, name)]
        # Brokers take it for done: a setting that there is not, is not set.
        if missing := [key for key in unset if key not in known]:
            remedy = f"`penstock topics describe {name} --all` shows those that exist"
            remedy = did_you_mean(missing, known) or remedy
            raise UsageError(operation, f"there is no setting {missing[0]}", remedy)
        resource = library("kafka.admin").ConfigResource("topic", name, changes)
        answer = client.alter_configs([resource], raise_on_unknown=False)
        result = answer["topic"][name]
        if result != "OK":
            # The client library has only this text for us: "[Error 40] ClassName: what was said".
            cause = str(result).partition(": ")[2] or str(result)
            unknown = [key for key in changes if key not in known]
            raise UsageError(operation, cause.rstrip("."), did_you_mean(unknown, known))
        return _describe(client, name, operation)


def add_partitions(bootstrap: str, name: str, total: int) -> TopicDescription:
    """Give a topic so many partitions, and return when they can be used.

    Raises:
        NotFoundError: there is no such topic.
        UsageError: it has as many already, or the broker refuses the number.
        PenstockError: the cluster could not be asked.
    """
    operation = f"cannot give topic {name} {total} partitions"
    with admin(bootstrap, operation) as client:
        _existing(client, [name], operation)
        answer = client.create_partitions({name: total}, raise_errors=False)
        _raise_first(operation, answer.to_dict()["results"])
        # A cluster tells its brokers of them one after the other.
        deadline = time.monotonic() + VISIBLE_SECONDS_MAX
        while len(_existing(client, [name], operation)[0]["partitions"]) < total:
            if time.monotonic() > deadline:
                cause = f"they cannot be seen after {VISIBLE_SECONDS_MAX:g} s"
                raise UnavailableError(
                    operation, cause, "look again with `penstock topics describe`"
                )
            time.sleep(0.1)
        client.wait_for_topics([name])
        return _describe(client, name, operation)


def plan_trim(
    bootstrap: str, name: str, *, partitions: Collection[int] = (), before: int | None
) -> list[Trim]:
    """What `trim_topic` would delete; an offset beyond an end stands for that end.

    Args:
        bootstrap: Addresses of the cluster.
        name: The topic.
        partitions: Which of them; all if empty.
        before: First offset to keep; None to keep no record that is there now.

    Raises:
        NotFoundError: there is no such topic or partition.
        OfflineError: one of the partitions is out of service.
        PenstockError: the cluster could not be asked.
    """
    operation = f"cannot trim {name}"
    with admin(bootstrap, operation) as client:
        (topic,) = _existing(client, [name], operation)
        found = _partitions(client, topic)
    if missing := sorted(set(partitions) - {one.index for one in found}):
        cause = f"it has no partition {missing[0]}"
        raise NotFoundError(operation, cause, f"use one from 0 to {len(found) - 1}")
    plan = []
    for one in found:
        if partitions and one.index not in partitions:
            continue
        if one.earliest is None or one.latest is None:
            cause = f"partition {one.index} is out of service"
            raise OfflineError(operation, cause, "name the others with --partition")
        wanted = one.latest if before is None else min(before, one.latest)
        plan.append(Trim(one.index, one.earliest, max(wanted, one.earliest), one.latest))
    return plan


def trim_topic(bootstrap: str, name: str, plan: Iterable[Trim]) -> dict[int, int]:
    """Delete the oldest records of partitions; the first offset that each of them then retains.

    Raises:
        UsageError: the topic is compacted.
        PenstockError: the cluster refused, perhaps for some of the partitions only, or could not be
            asked.
    """
    operation = f"cannot trim {name}"
    key = library().TopicPartition
    starts: dict[int, int] = {}
    with admin(bootstrap, operation) as client:
        try:
            for one in plan:
                # One at a time: of several errors the client library has only a text for us.
                (found,) = client.delete_records({key(name, one.partition): one.before}).values()
                starts[one.partition] = int(found["low_watermark"])
        except library("kafka.errors").PolicyViolationError as error:
            cause = "its cleanup.policy is compact: records go when a newer one has their key"
            remedy = "write a tombstone for each key, or add delete to the policy"
            raise UsageError(operation, cause, remedy) from error
    return starts


def did_you_mean(given: Iterable[str], known: Iterable[str]) -> str:
    """A remedy that names the nearest of the known names; empty if none is near."""
    candidates = list(known)
    close = [name for one in given for name in difflib.get_close_matches(one, candidates, n=1)]
    return f"did you mean {' and '.join(close)}?" if close else ""


def _existing(client: Any, names: Sequence[str], operation: str, remedy: str = "") -> list[Any]:
    """Metadata of the topics; an error unless all of them exist."""
    topics = client.describe_topics(list(names))
    for topic in topics:
        if topic["error_code"]:
            problem = error_of_code(operation, topic["error_code"], None)
            if isinstance(problem, NotFoundError):
                name = str(topic["name"])
                remedy = did_you_mean([name], client.list_topics()) or remedy
                raise NotFoundError(operation, f"there is no topic {name}", remedy or _LIST_THEM)
            raise problem
    return list(topics)


def _describe(client: Any, name: str, operation: str) -> TopicDescription:
    (topic,) = _existing(client, [name], operation)
    return TopicDescription(_summary(topic), _partitions(client, topic), _configs(client, name))


def _summary(topic: Any) -> TopicSummary:
    partitions = topic["partitions"]
    # A UUID in hexadecimal groups; Kafka's tools print the same 16 bytes in base 64.
    raw = bytes.fromhex(str(topic.get("topic_id") or "").replace("-", ""))
    return TopicSummary(
        name=str(topic["name"]),
        id=base64.urlsafe_b64encode(raw).decode().rstrip("="),
        partitions=len(partitions),
        replication_factor=len(partitions[0]["replica_nodes"]) if partitions else 0,
        internal=bool(topic["is_internal"]),
    )


def _partitions(client: Any, topic: Any) -> list[PartitionState]:
    kafka = library()
    keys = [
        kafka.TopicPartition(topic["name"], one["partition_index"]) for one in topic["partitions"]
    ]
    earliest = partition_offsets(client, keys, kafka.OffsetSpec.EARLIEST)
    latest = partition_offsets(client, keys, kafka.OffsetSpec.LATEST)
    found = [
        PartitionState(
            index=one["partition_index"],
            leader=one["leader_id"],
            replicas=list(one["replica_nodes"]),
            in_sync=list(one["isr_nodes"]),
            earliest=earliest.get(key),
            latest=latest.get(key),
        )
        for key, one in zip(keys, topic["partitions"], strict=True)
    ]
    return sorted(found, key=lambda partition: partition.index)


def partition_offsets(client: Any, keys: Sequence[Any], spec: Any) -> dict[Any, int]:
    """Offsets of the partitions that are in service."""
    errors = library("kafka.errors")
    # The second is for a partition without a leader, of which no broker is asked.
    refused = (errors.BrokerResponseError, errors.UnknownBrokerIdError)
    try:
        answer = client.list_partition_offsets(dict.fromkeys(keys, spec))
    except refused:
        # The client library drops the whole answer for one bad partition: ask for each on its own.
        answer = {}
        for key in keys:
            with contextlib.suppress(*refused):
                answer |= client.list_partition_offsets({key: spec})
    return {key: found.offset for key, found in answer.items()}


def _configs(client: Any, name: str) -> list[ConfigValue]:
    resource = library("kafka.admin").ConfigResource("topic", name)
    answer = client.describe_configs([resource], config_filter="all")
    found = [
        ConfigValue(key, None if entry["is_sensitive"] else entry["value"], _source(entry))
        for key, entry in answer["topic"][name].items()
    ]
    return sorted(found, key=lambda config: (config.source != "topic", config.name))


def _source(entry: Any) -> str:
    source = str(entry["config_source"])
    if source == "DYNAMIC_TOPIC_CONFIG":
        return "topic"
    return "default" if source == "DEFAULT_CONFIG" else "broker"


def _raise_first(operation: str, results: Iterable[Any]) -> None:
    for result in results:
        if result["error_code"]:
            raise error_of_code(operation, result["error_code"], result.get("error_message"))
