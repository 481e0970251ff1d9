"""The pipeline of examples/shop, run as it is with two addresses: every total is right."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from examples.shop.events import TOPICS, day
from examples.shop.tables import Tables, check
from tests.clients.brokers import Broker
from tests.clients.contract import Record
from tests.clients.wire import Wire
from tests.support.commands import PENSTOCK

PIPELINE = Path(__file__).parents[2] / "examples/shop/pipeline.py"


@pytest.mark.compat
@pytest.mark.timeout(600)
def test_every_total_is_right(
    broker: Broker, wire: Wire, spark_master: str, tmp_path: Path
) -> None:
    events = day(1, seconds=3600, visits_per_second=0.5)
    for topic in TOPICS:
        wire.create_topic(topic, 2)
        for partition in range(2):
            some = [e for e in events if e.topic == topic and int(e.key[1:]) % 2 == partition]
            wire.write(topic, [Record(event.value()) for event in some], partition=partition)
    addresses = ["--bootstrap", broker.bootstrap, "--master", spark_master]
    done = subprocess.run(
        [*PENSTOCK, "run", str(PIPELINE), *addresses, "--until", "now", "--", "shop.db"],
        # Or the workers of a cluster would look for the driver under the name of this machine.
        env=os.environ | {"PENSTOCK_PIPELINES": "pipelines", "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not check(events, range(len(events)), Tables(tmp_path / "shop.db"))
