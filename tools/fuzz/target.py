"""One decoder: how its inputs are made, and what is done with them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import ClassVar

Step = Callable[[], None]
"""Called before each part of an input that must be done within the time limit by itself."""


class BrokenError(Exception):
    """The decoder returned something that it must not."""


class Target(ABC):
    """Inputs are bytes and nothing else decides what happens, so that each can be kept as a seed."""

    name: ClassVar[str]
    share: ClassVar[int]
    """Inputs out of a million."""
    parts: ClassVar[int] = 1
    """How many inputs one call of `generate` counts for."""

    def generate(self, random: Random) -> bytes:
        """The next input."""
        return self._generate(random)

    def run(self, data: bytes, step: Step) -> None:
        """Decode. Errors of the tree under PenstockError are the right answer to bad input."""
        self._run(data, step)

    def smaller(self, data: bytes) -> list[bytes]:
        """Inputs to try instead of one that failed; none if it cannot be taken apart."""
        return self._smaller(data)

    @abstractmethod
    def _generate(self, random: Random) -> bytes: ...

    @abstractmethod
    def _run(self, data: bytes, step: Step) -> None: ...

    def _smaller(self, data: bytes) -> list[bytes]:
        return []
