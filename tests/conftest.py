"""Settings of all tests: the JVMs that they start do not live for long."""

from __future__ import annotations

import os

from tools.java import SHORT_LIVED

# Of the JVM that finds out how to start Spark's, and of Spark's own.
for name in ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"):
    os.environ.setdefault(name, SHORT_LIVED)
