"""Settings of all tests: Spark starts fast and does not live for long; who may drop a socket."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.dropped_sockets import close_dropped_sockets
from tools.java import SHORT_LIVED

# Of the JVM that finds out how to start Spark's, and of Spark's own.
for name in ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"):
    os.environ.setdefault(name, SHORT_LIVED)

_places = [str(Path(__file__).parent / "support/workers"), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(place for place in _places if place)

close_dropped_sockets()
