"""The hash by which Kafka's clients choose a partition for a key: murmur2, with Kafka's seed.

This module may run compiled (setup.py), with the C types that stand in murmur2.pxd.
"""

from __future__ import annotations

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_32_BITS = 0xFFFFFFFF
_31_BITS = 0x7FFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that every client of Kafka chooses for a key."""
    return (murmur2(key) & _31_BITS) % partitions


def murmur2(data: bytes) -> int:
    """Murmur2 of 32 bits."""
    size = len(data)
    value = (_SEED ^ size) & _32_BITS
    whole = size & ~3
    for at in range(0, whole, 4):
        block = data[at] | (data[at + 1] << 8) | (data[at + 2] << 16) | (data[at + 3] << 24)
        block = (block * _FACTOR) & _32_BITS
        block = ((block ^ (block >> 24)) * _FACTOR) & _32_BITS
        value = ((value * _FACTOR) & _32_BITS) ^ block
    rest = size & 3
    if rest == 3:
        value ^= data[whole + 2] << 16
    if rest >= 2:
        value ^= data[whole + 1] << 8
    if rest >= 1:
        value ^= data[whole]
        value = (value * _FACTOR) & _32_BITS
    value = ((value ^ (value >> 13)) * _FACTOR) & _32_BITS
    return value ^ (value >> 15)
