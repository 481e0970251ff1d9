"""Run by every Python that a test starts: Spark's workers take pyspark from where it is installed.

Spark puts a zip of it first on their path, in which there is no bytecode. Each worker would compile
what it imports; that takes most of the time of a short query, and on a busy machine more than the ten
seconds that Spark waits for a worker.
"""

from __future__ import annotations

import sys

sys.path[:] = [place for place in sys.path if not place.endswith(("/pyspark.zip", "-src.zip"))]
