"""A broker to ask, for every test of the protocol."""

from __future__ import annotations

import pytest
from tests.unit.kafka.exchange import Exchange


@pytest.fixture
def exchange() -> Exchange:
    return Exchange()
