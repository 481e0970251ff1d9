"""The public test kit: a real broker inside a test, in milliseconds.

    from penstock.testing import broker

    def test_orders():
        with broker() as running:
            producer = Producer({"bootstrap.servers": running.bootstrap})

With pytest there is nothing to import: the fixture `penstock_broker` starts one per test, and
`penstock_spark` is a Spark session for all tests; `stepping` feeds it rows step by step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.spark.stepping import Stepping, Steps, stepping
    from penstock.testing.running import RunningBroker, broker

__all__ = ["RunningBroker", "Stepping", "Steps", "broker", "stepping"]
_SPARK: Final = ("Stepping", "Steps", "stepping")


def __getattr__(name: str) -> Any:
    """Load the server only when a broker is asked for: clocks and files are used without one."""
    if name in _SPARK:
        from penstock.spark import stepping as steps  # noqa: PLC0415 -- needs the extra spark

        return getattr(steps, name)
    if name in __all__:
        from penstock.testing import running  # noqa: PLC0415

        return getattr(running, name)
    raise AttributeError(name)
