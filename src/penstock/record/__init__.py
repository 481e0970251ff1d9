"""Kafka's record batch (format v2): header, checksum, compression, decoding, encoding."""

from penstock.record import batch


def compiled() -> bool:
    """Whether the modules written in Cython's pure-Python mode run compiled."""
    return not batch.__file__.endswith(".py")
