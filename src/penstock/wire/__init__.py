"""Kafka's message encoding: the schemas and codec of kafka-python, and primitives for the hot paths."""
