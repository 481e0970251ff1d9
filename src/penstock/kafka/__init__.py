"""Kafka's protocol: one file per group of requests, thin: decode, call the broker, encode."""

from importlib import import_module

from penstock.wire.quietly import loading_schemas

# Here and not in each of the files that import a part of it: the first of them loads everything.
with loading_schemas():
    import_module("kafka")
