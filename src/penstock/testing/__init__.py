"""The public test kit: a real broker inside a test, in milliseconds.

    from penstock.testing import broker

    def test_orders():
        with broker() as running:
            producer = Producer({"bootstrap.servers": running.bootstrap})

With pytest there is nothing to import: the fixture `penstock_broker` starts one per test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.running import RunningBroker, broker

__all__ = ["RunningBroker", "broker"]


def __getattr__(name: str) -> Any:
    """Load the server only when a broker is asked for: clocks and files are used without one."""
    if name in __all__:
        from penstock.testing import running  # noqa: PLC0415

        return getattr(running, name)
    raise AttributeError(name)
