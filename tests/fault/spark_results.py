"""What sinks must hold: the same computation over the same input, up to the end of a batch."""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.fault.killed_broker import CLIENT
from tests.fault.spark_cases import PARTITIONS, SOURCE

Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = list[Row]
Ends: TypeAlias = tuple[int, ...]
"""Of each partition the offset that comes next."""
USERS = 7


def values(bootstrap: str, topic: str, starts: Ends) -> list[Rows]:
    """The committed values of each partition, from an offset on."""
    config = CLIENT | {
        "bootstrap.servers": bootstrap,
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer(config)
    found: list[Rows] = []
    for number, start in enumerate(starts):
        found.append([])
        consumer.assign([TopicPartition(topic, number, start)])
        while (message := consumer.poll(30)).error() is None:
            one = json.loads(message.value())
            found[-1].append((one["user"], one["n"]))
    consumer.close()
    return found


class Input:
    """The topic that is read: what was produced, by partition."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._bootstrap = bootstrap
        self._random = random.Random(seed)
        self.parts: list[Rows] = [[] for _ in range(PARTITIONS)]

    @property
    def ends(self) -> Ends:
        return tuple(len(part) for part in self.parts)

    def add(self, count: int) -> None:
        """Produce records, each of which is another one, and read them back."""
        first = sum(self.ends)
        producer = Producer(CLIENT | {"bootstrap.servers": self._bootstrap})
        for n in range(first, first + count):
            user = f"u{self._random.randrange(USERS)}"
            value = json.dumps({"user": user, "n": n})
            producer.produce(SOURCE, value.encode(), user.encode())
        assert producer.flush(60) == 0
        new = values(self._bootstrap, SOURCE, self.ends)
        for part, more in zip(self.parts, new, strict=True):
            part.extend(more)
        assert sum(self.ends) == first + count

    def rows(self, begins: Ends, ends: Ends) -> Rows:
        """What stands between two places."""
        cut = zip(self.parts, begins, ends, strict=True)
        return [row for part, begin, end in cut for row in part[begin:end]]


def totals(rows: Rows) -> Rows:
    """Counts and sums by user."""
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for user, n in rows:
        counts[user] += 1
        sums[user] += n
    return sorted((user, counts[user], sums[user]) for user in counts)


class Plan:
    """What the batches of one query are, by its checkpoint: once a sink has one, it stays."""

    def __init__(self, query: str, checkpoint: str, given: Input) -> None:
        self._query, self._input = query, given
        self._folder = Path(checkpoint)
        self._ends: list[Ends] = [(0,) * PARTITIONS]

    def look(self, written: Mapping[str, int]) -> None:
        """Read what is planned now, beside the last batch that each sink has; -1: none."""
        known = self._ends[: max(written.values()) + 2]
        self._ends = [(0,) * PARTITIONS]
        self._ends += map(self._planned, range(self.newest("offsets") + 1))
        assert self._ends[: len(known)] == known, f"{self._query}: a batch that is out has changed"
        done, planned = self.newest("commits"), self.newest("offsets")
        wrong = [case for case, last in written.items() if not done <= last <= planned]
        assert not wrong, f"{wrong}: {written}, of batches done {done}, and planned {planned}"

    def read(self) -> int:
        """How many records were planned to be read; a plan that is just being written does not count."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            return sum(self._planned(self.newest("offsets")))
        return 0

    def _planned(self, batch: int) -> Ends:
        offset = json.loads((self._folder / f"offsets/{batch}").read_text().split("\n")[2])
        found = offset.get(SOURCE, {})
        return tuple(int(found.get(str(number), 0)) for number in range(PARTITIONS))

    def newest(self, folder: str) -> int:
        """The number of the newest file; -1: there is none."""
        found = (self._folder / folder).glob("[0-9]*")
        return max((int(file.name) for file in found if file.name.isdecimal()), default=-1)

    @property
    def ends(self) -> Ends:
        return self._ends[-1]

    def ends_of(self, batch: int) -> Ends:
        """Where a batch ends."""
        return self._ends[batch + 1]

    def batch(self, number: int) -> Rows:
        """The input of one batch."""
        return self._input.rows(self._ends[number], self._ends[number + 1])

    def result(self, last: int) -> Rows:
        """What the sink must hold with a batch, -1: before the first."""
        rows = self._input.rows(self._ends[0], self._ends[last + 1])
        return sorted(rows) if self._query == "rows" else totals(rows)
