from __future__ import annotations

import random

from penstock.log.offset_map import OffsetMap


def test_it_remembers_the_last_offset_of_every_key() -> None:
    rng = random.Random(1)
    model: dict[bytes, int] = {}
    found = OffsetMap()
    for offset in range(20_000):
        key = b"%d" % rng.randrange(5_000)
        model[key] = offset
        found.put(key, offset)
    assert len(found) == len(model)
    assert {key: found.get(key) for key in model} == model


def test_keys_that_are_not_there() -> None:
    found = OffsetMap()
    assert found.get(b"") == -1
    found.put(b"", 0)
    found.put(b"x", 2**62)
    assert (len(found), found.get(b""), found.get(b"x"), found.get(b"y")) == (2, 0, 2**62, -1)
