"""Materialized views: tables in SQLite or PostgreSQL that a query keeps current, and how to ask them.

Nothing here knows Spark, HTTP or a loop. `penstock.spark.materialize` writes views, the HTTP port and
the command line read them, all through `penstock.views.store`.
"""

from penstock.views.query import Query
from penstock.views.store import ViewStore, open_store

__all__ = ["Query", "ViewStore", "open_store"]
