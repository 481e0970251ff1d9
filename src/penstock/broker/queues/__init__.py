"""Queues over a log: which of its positions are finished, which are given out, and to whom."""
