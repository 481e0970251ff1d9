"""Kafka's protocol: one file per group of requests, thin: decode, call the broker, encode."""
