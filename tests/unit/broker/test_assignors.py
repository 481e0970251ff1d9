"""The assignors: everything is given out, evenly, and little moves."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from penstock.broker.assignors import (
    ASSIGNORS,
    Reader,
    Shape,
    Shares,
    share_by_range,
    share_uniformly,
)
from penstock.log.positions import PartitionId


def shapes(*counts: int) -> dict[str, Shape]:
    return {f"t{n}": Shape(UUID(int=n + 1), count) for n, count in enumerate(counts)}


def readers(count: int, *topics: str) -> list[Reader]:
    return [Reader(f"m{n}", None, frozenset(topics)) for n in range(count)]


def sizes(shares: Shares) -> list[int]:
    return sorted(map(len, shares.values()))


def moved(before: Shares, after: Shares) -> int:
    owners = {partition: member for member, share in before.items() for partition in share}
    return sum(owners.get(p, m) != m for m, share in after.items() for p in share)


def numbers(shares: Shares, member: str) -> list[int]:
    return [partition.partition for partition in sorted(shares[member])]


class TestUniform:
    @pytest.mark.parametrize(
        ("partitions", "members", "expected"),
        [(4, 2, [2, 2]), (5, 2, [2, 3]), (1, 3, [0, 0, 1]), (0, 2, [0, 0]), (10, 4, [2, 2, 3, 3])],
    )
    def test_even(self, partitions: int, members: int, expected: list[int]) -> None:
        topics = shapes(partitions) if partitions else {}
        assert sizes(share_uniformly(readers(members, *topics), topics, {})) == expected

    def test_a_new_member_moves_only_its_share(self) -> None:
        topics = shapes(6, 6)
        before = share_uniformly(readers(3, *topics), topics, {})
        after = share_uniformly(readers(4, *topics), topics, before)
        assert (sizes(after), moved(before, after)) == ([3, 3, 3, 3], 3)

    def test_who_goes_leaves_the_others_what_they_have(self) -> None:
        topics = shapes(12)
        before = share_uniformly(readers(4, *topics), topics, {})
        after = share_uniformly(readers(3, *topics), topics, before)
        assert (sizes(after), moved({m: before[m] for m in after}, after)) == ([4, 4, 4], 0)

    def test_nothing_moves_without_need(self) -> None:
        """The most loaded gives first: from 3, 5 and 0 two partitions move, not three."""
        topics = shapes(8)
        every = [PartitionId(topics["t0"].id, n) for n in range(8)]
        before = {
            "m0": frozenset(every[:3]),
            "m1": frozenset(every[3:]),
            "m2": frozenset[PartitionId](),
        }
        after = share_uniformly(readers(3, "t0"), topics, before)
        assert (sizes(after), moved(before, after)) == ([2, 3, 3], 2)

    def test_topics_that_only_some_read(self) -> None:
        topics = shapes(2, 6)
        every = [*readers(2, "t0", "t1"), Reader("x", None, frozenset({"t1"}))]
        after = share_uniformly(every, topics, {})
        assert {p.topic_id for p in after["x"]} == {topics["t1"].id}
        assert sizes(after) == [2, 3, 3]

    def test_what_no_longer_exists_is_forgotten(self) -> None:
        topics = shapes(4, 4)
        before = share_uniformly(readers(2, *topics), topics, {})
        after = share_uniformly(readers(2, "t0"), shapes(2), before)
        assert {p for share in after.values() for p in share} == {
            PartitionId(topics["t0"].id, n) for n in range(2)
        }


class TestRange:
    def test_neighbours(self) -> None:
        topics = shapes(5)
        shares = share_by_range(readers(2, "t0"), topics, {})
        assert (numbers(shares, "m0"), numbers(shares, "m1")) == ([0, 1, 2], [3, 4])

    def test_equal_numbers_of_topics_stay_together(self) -> None:
        topics = shapes(4, 4)
        shares = share_by_range(readers(2, *topics), topics, {})
        assert numbers(shares, "m0") == [0, 1, 0, 1]

    def test_static_members_keep_their_place(self) -> None:
        topics = shapes(4)
        first, second = Reader("z", "one", frozenset(topics)), Reader("y", "two", frozenset(topics))
        shares = share_by_range([second, first], topics, {})
        assert numbers(shares, "z") == [0, 1]


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("seed", range(30))
def test_everything_that_is_read_has_one_owner(assignor: str, seed: int) -> None:
    rng = random.Random(seed)
    before: Shares = {}
    for _ in range(10):
        topics = shapes(*(rng.randrange(1, 9) for _ in range(rng.randrange(1, 5))))
        members = [
            Reader(
                f"m{n}", None, frozenset(rng.sample(sorted(topics), rng.randint(0, len(topics))))
            )
            for n in rng.sample(range(8), rng.randrange(1, 8))
        ]
        if rng.random() < 0.5:
            members = [member._replace(topics=frozenset(topics)) for member in members]
        shares = ASSIGNORS[assignor](members, topics, before)
        given = [partition for share in shares.values() for partition in share]
        read = {name for member in members for name in member.topics}
        assert sorted(given) == sorted(
            PartitionId(topics[n].id, p) for n in read for p in range(topics[n].partitions)
        )
        names = {shape.id: name for name, shape in topics.items()}
        for member in members:
            assert {names[p.topic_id] for p in shares[member.member_id]} <= member.topics
        if assignor == "uniform" and len({member.topics for member in members}) == 1:
            assert max(sizes(shares)) - min(sizes(shares)) <= 1
        before = shares
