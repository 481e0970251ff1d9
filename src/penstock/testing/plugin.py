"""The pytest plugin: found by its entry point, so that tests only name the fixture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing import RunningBroker


@pytest.fixture
def penstock_broker() -> Iterator[RunningBroker]:
    """A real broker with an empty data folder, for one test."""
    # Imported here: a test run that does not use the fixture should not pay for it.
    from penstock.testing import broker  # noqa: PLC0415

    with broker() as running:
        yield running
