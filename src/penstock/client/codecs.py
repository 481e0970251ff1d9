"""Our codecs and our checksum inside kafka-python.

It looks for three more libraries to compress and decompress with, and for one that makes checksums,
none of which Penstock depends on: cramjam does all of the first, behind the bounds of
penstock.record.compression, and fastcrc the other, which it would do in Python, a thousand times
slower. This module puts those functions where kafka-python looks; nothing else of it is touched.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Final

from penstock.crc32c import crc32c
from penstock.record.compression import NAMES, compress, decompress
from penstock.wire.quietly import loading_schemas

_CODECS: Final = {name: code for code, name in NAMES.items() if name in ("snappy", "lz4", "zstd")}
# The second and third have copied the functions of the first by the time we come.
_MODULES: Final = ("kafka.codec", "kafka.record.default_records", "kafka.record.legacy_records")


@functools.cache
def install() -> None:
    """Import kafka-python and make it use our codecs and checksum."""
    with loading_schemas():
        codec = importlib.import_module("kafka.codec")
    for name in _CODECS:
        # These globals are the libraries it looked for; a codec is available where one is set.
        setattr(codec, name, getattr(codec, name) or True)
    for module_name in _MODULES:
        module = importlib.import_module(module_name)
        for name, number in _CODECS.items():
            # The old message format has no zstd.
            if hasattr(module, f"{name}_encode"):
                setattr(module, f"{name}_encode", _encoder(number))
                setattr(module, f"{name}_decode", _decoder(number))
    # Where batches are built and checked: it has copied the name as well.
    records: Any = importlib.import_module("kafka.record.default_records")
    records.calc_crc32c = crc32c


def _encoder(codec: int) -> Callable[[bytes], bytes]:
    return lambda data: compress(codec, bytes(data))


def _decoder(codec: int) -> Callable[[bytes], bytes]:
    return lambda data: decompress(codec, data)
