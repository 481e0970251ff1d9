"""The storage engine: partitions of segments, group commit, recovery, retention, journals.

Synchronous, without a protocol or an event loop: files, time and the thread that syncs are passed in.
"""
