"""Schemas of Kafka messages that kafka-python does not have, in Kafka's own notation."""
