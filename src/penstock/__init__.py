"""Penstock: a durable, partitioned event log that Kafka clients use unchanged, in one process."""

__version__ = "0.1.0"
