from __future__ import annotations

import pytest
from tests.support.log import Log


@pytest.fixture
def log() -> Log:
    return Log()
