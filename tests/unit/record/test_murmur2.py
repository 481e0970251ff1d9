"""The hash of keys: that of Kafka's clients."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference

from penstock.record.murmur2 import murmur2, partition_of


@given(st.binary(max_size=70))
def test_is_that_of_kafkas_clients(key: bytes) -> None:
    assert murmur2(key) == reference(key) & 0xFFFFFFFF
    assert partition_of(key, 6) == (reference(key) & 0x7FFFFFFF) % 6
