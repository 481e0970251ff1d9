"""Both brokers, for what must be the same on any of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.clients.brokers import RUNNERS, Broker


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("penstock", id="on-penstock"),
        pytest.param("kafka", id="on-kafka", marks=pytest.mark.compat),
    ],
)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    with RUNNERS[request.param](tmp_path_factory.mktemp(request.param)) as running:
        yield running
