"""Looks at a store of views again and again, while somebody waits for a change, and tells them all."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping

from penstock.errors import PenstockError
from penstock.limits import VIEW_LOOK_SECONDS

Mark = tuple[int, int]
_log = logging.getLogger(__name__)


class ViewWatcher:
    """See the module.

    Args:
        look: which version and batch each view is at.
    """

    def __init__(self, look: Callable[[], Awaitable[Mapping[str, Mark]]]) -> None:
        self._look = look
        self._marks: Mapping[str, Mark] = {}
        self._looked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.waiting = 0
        """How many there are."""

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Be one of those who wait; the last to leave ends the looking."""
        self.waiting += 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._watch())
        try:
            yield
        finally:
            self.waiting -= 1
            if not self.waiting and self._task is not None:
                self._task.cancel()
                self._task = None

    async def has_moved(self, view: str, mark: Mark, seconds_max: float) -> bool:
        """Wait until a view is elsewhere than at a mark, or the time is up: then False."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while True:
                    # A look that comes: what an earlier one saw may be older than the mark.
                    await self._looked.wait()
                    if self._marks.get(view) != mark:
                        return True
        return False

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(VIEW_LOOK_SECONDS)
            try:
                self._marks = await self._look()
            except PenstockError as error:
                _log.warning("%s", error)
                continue
            except Exception:  # nobody waits for this task, and it would end unheard
                _log.exception("looking at the views failed")
                continue
            looked, self._looked = self._looked, asyncio.Event()
            looked.set()
