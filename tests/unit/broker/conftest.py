"""A group by itself, and people who join it."""

from __future__ import annotations

import pytest
from tests.unit.broker.crowd import Crowd


@pytest.fixture
def crowd() -> Crowd:
    return Crowd()
