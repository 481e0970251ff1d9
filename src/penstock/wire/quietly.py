"""Loads kafka-python's schemas without a word."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def loading_schemas() -> Iterator[None]:
    """For what reads schemas: an import of kafka-python, or the making of a message.

    It reads them by a function that Python 3.11 and 3.12 call deprecated, which must not be the end
    of a program that turns warnings into errors, such as the tests of many projects.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
