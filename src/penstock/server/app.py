"""The composition root: builds log, broker, protocol and listeners, and stops them in reverse.

Stopping: accept nobody, read no more requests, answer what waits, wait for the commit rounds, close
the connections, then write checkpoints and the mark of an orderly stop.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom

from penstock.broker.broker import Broker
from penstock.clock import Clock, SystemClock
from penstock.config import Address, ServeSettings
from penstock.errors import PenstockError, StorageError, UsageError
from penstock.files import Files, FolderLock, OsFiles, lacks_descriptor
from penstock.kafka.call import Context
from penstock.kafka.consumer_dialect import ConsumerDialect
from penstock.kafka.dispatcher import Dispatcher
from penstock.kafka.fetch_session import FetchSessions
from penstock.kafka.pace import Pace
from penstock.kafka.share_session import ShareSessions
from penstock.limits import (
    CONNECTIONS_MAX,
    MEMORY_TOPICS_DIVISOR,
    OFFSETS_SYNC_SECONDS,
    RECEIVE_BUFFER_LOOK_SECONDS,
    SWITCH_SECONDS,
)
from penstock.log.memory_space import MemorySpace
from penstock.log.space import means_full
from penstock.log.store import LogStore, foreign_names, not_started
from penstock.machine import memory_bytes
from penstock.server.cleaner import CleanerProcess
from penstock.server.connection import Connection, Connections
from penstock.server.http_listener import HttpListener
from penstock.server.listening import cannot_listen
from penstock.server.threads import COLD_THREADS, SyncThread, Threads
from penstock.server.turn import Turn

_STOP_SECONDS_MAX = 10.0
_STALL_LOOK_SECONDS = 5.0
_RETENTION_SECONDS = 10.0
_BACKLOG = 1024
_NAMES_SHOWN = 3
_log = logging.getLogger(__name__)


class Server:
    """A running broker. Start and stop it on the loop it was made for."""

    def __init__(
        self, settings: ServeSettings, *, clock: Clock | None = None, files: Files | None = None
    ) -> None:
        settings.validate()
        self._settings = settings
        self._clock = clock or SystemClock()
        self._files = files or OsFiles()
        self._timers: list[asyncio.TimerHandle] = []
        self.listening: list[Address] = []
        """Where Kafka clients connect."""
        self.http = HttpListener(settings)

    async def start(self) -> None:
        """Open the data folder and listen.

        Raises:
            PenstockError: the folder or an address cannot be had; nothing is left behind.
        """
        loop = asyncio.get_running_loop()
        data = self._settings.data
        self._lock = _lock(data)
        self._turn = Turn(loop.call_soon)
        self._sync_thread = SyncThread(loop, self._turn)
        self._cold_threads = Threads(loop, "cold", COLD_THREADS)
        self._codec_thread = Threads(loop, "codec", 1)
        self._cleaner = CleanerProcess(loop)
        try:
            # The address first: a folder that was opened and not closed in order is checked again.
            await self._listen(loop)
            try:
                await self.http.listen(loop)
                self._open_log(loop, data)
                self._build_handlers(loop)
                await self._listener.start_serving()
                await self.http.start_serving(self.broker, self._clock)
            except BaseException:
                self._listener.close()
                self.http.close()
                await self._listener.wait_closed()
                raise
        except BaseException:
            self._sync_thread.stop()
            self._cold_threads.stop()
            self._codec_thread.stop()
            self._lock.release()
            raise
        self._every(loop, RECEIVE_BUFFER_LOOK_SECONDS, self._connections.shrink_buffers)
        self._every(loop, _STALL_LOOK_SECONDS, self._connections.close_stalled)
        self._every(loop, _RETENTION_SECONDS, self.broker.keep_retention)
        self._every(loop, OFFSETS_SYNC_SECONDS, self.broker.groups.sync_offsets)

    def _open_log(self, loop: asyncio.AbstractEventLoop, data: Path) -> None:
        try:
            self._open_folder(loop, data)
        except OSError as error:
            raise not_started(f"open data folder {data}", error) from error

    def _open_folder(self, loop: asyncio.AbstractEventLoop, data: Path) -> None:
        bound = self._settings.memory_topics or memory_bytes() // MEMORY_TOPICS_DIVISOR
        store = LogStore(
            self._files,
            data,
            self._clock,
            run=self._sync_thread.run,
            defer=loop.call_soon,
            sync=self._sync_thread.sync if isinstance(self._files, OsFiles) else None,
            background=self._cold_threads.start,
            compact=self._cleaner.start,
            memory=MemorySpace(self._clock, bound),
        )
        self.broker = Broker(
            store, self._clock, call_later=loop.call_later, dialect=ConsumerDialect()
        )
        self.broker.open()

    def _build_handlers(self, loop: asyncio.AbstractEventLoop) -> None:
        advertise = self._settings.advertise
        self._context = Context(
            broker=self.broker,
            clock=self._clock,
            call_soon=self._turn.soon,
            call_later=loop.call_later,
            run_cold=self._cold_threads.run,
            pace=Pace(self._clock, loop.call_soon, self._codec_thread.run),
            advertised=(advertise.host, advertise.port) if advertise else None,
            fetch_sessions=FetchSessions(SystemRandom(), self._clock),
            share_sessions=ShareSessions(),
        )
        self._connections = Connections(
            Dispatcher(self._context),
            self._clock,
            self._turn,
            min(CONNECTIONS_MAX, _connections_affordable()),
        )

    async def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        address = self._settings.kafka
        try:
            self._listener = await loop.create_server(
                lambda: Connection(self._connections),
                address.host,
                address.port,
                backlog=_BACKLOG,
                start_serving=False,
            )
        except OSError as error:
            raise cannot_listen(address, "--kafka", error) from error
        names = [socket.getsockname() for socket in self._listener.sockets]
        self.listening = [Address(name[0], name[1]) for name in names]

    def _every(
        self, loop: asyncio.AbstractEventLoop, seconds: float, job: Callable[[], None]
    ) -> None:
        at = len(self._timers)

        def tick() -> None:
            try:
                job()
            except Exception:
                # Also a mistake of ours: without this work disks fill up and connections are not ended.
                _log.exception("periodic work failed and is tried again")
            self._timers[at] = loop.call_later(seconds, tick)

        self._timers.append(loop.call_later(seconds, tick))

    async def stop(self) -> None:
        """See the module.

        Raises:
            StorageError: checkpoints or the mark could not be written; all is stopped nevertheless.
        """
        connections = self._connections
        connections.stopping = True
        self._listener.close()
        self.http.close()
        for timer in self._timers:
            timer.cancel()
        for connection in list(connections.open):
            connection.stop_reading()
        for fetch in list(self._context.waiting_fetches):
            fetch.finish()
        self.broker.groups.stop()
        await self._cleaner.stop()
        try:
            async with asyncio.timeout(_STOP_SECONDS_MAX):
                await self.http.stop(_STOP_SECONDS_MAX)
                await self._last_round()
                await connections.wait_until(lambda: all(c.idle for c in connections.open))
                for connection in list(connections.open):
                    connection.close()
                await connections.wait_until(lambda: not connections.open)
        except TimeoutError:
            _log.warning("%d connections did not take their answers", len(connections.open))
            for connection in list(connections.open):
                connection.abort()
        # What was begun for somebody who is gone goes on otherwise, over a broker that is closed.
        self._context.pace.stop()
        await self._last_round()
        await self._listener.wait_closed()
        self._sync_thread.stop()
        self._cold_threads.stop()
        self._codec_thread.stop()
        try:
            self.broker.close()
        except OSError as error:
            raise _not_in_order(error) from error
        finally:
            self._lock.release()

    async def _last_round(self) -> None:
        """Wait for a commit round that starts now: everything appended is answered then."""
        done = asyncio.get_running_loop().create_future()
        self.broker.commit.after(lambda: done.set_result(None))
        await done


def serve(settings: ServeSettings, say: Callable[[str], None]) -> None:
    """Run a server until SIGTERM or SIGINT. Says a line per listener and then `ready`."""
    raise_descriptor_limit()
    calm_garbage_collector()
    # The commit thread needs the interpreter for rounds that write something, and uncompiled for every
    # round. With Python's default of 5 ms a busy loop keeps it waiting for up to a millisecond.
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(settings, say))


async def _serve(settings: ServeSettings, say: Callable[[str], None]) -> None:
    server = Server(settings)
    await server.start()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    for address in server.listening:
        say(f"kafka listening on {address}")
    for line in server.http.report():
        say(line)
    say("ready")
    await stop.wait()
    say("stopping")
    await server.stop()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Uvloop where it is installed, asyncio's own loop elsewhere."""
    try:
        import uvloop  # noqa: PLC0415  (optional)
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def calm_garbage_collector() -> None:
    """Keep the collector of cycles out of the way of answers.

    Requests leave no cycles behind, and what exists at the start, such as the message schemas, stays:
    walking it again and again only costs milliseconds at the wrong moment. What is garbage of it, some
    hundred objects, is not worth the time of a first walk.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    gc.enable()


def raise_descriptor_limit() -> None:
    """Take all the descriptors the system grants: every partition and connection needs one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _connections_affordable() -> int:
    """Half of the descriptors, two for each: a segment that finds none takes no data."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS_MAX if descriptors == resource.RLIM_INFINITY else descriptors // 4


def _lock(data: Path) -> FolderLock:
    operation = f"cannot open data folder {data}"
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        foreign = foreign_names(path.name for path in data.iterdir())
    except OSError as error:
        raise _not_ours(operation, error) from error
    if foreign:
        shown = ", ".join(foreign[:_NAMES_SHOWN]) + (", ..." if foreign[_NAMES_SHOWN:] else "")
        cause = f"it holds what is not Penstock's ({shown}) and no format.json"
        remedy = "choose a new or empty folder with --data, or move that out of it"
        raise UsageError(operation, cause, remedy)
    try:
        return FolderLock(data / "lock")
    except OSError as error:
        raise _not_ours(operation, error) from error


def _not_ours(operation: str, error: OSError) -> PenstockError:
    """What to say of a folder that the system does not let us have."""
    if means_full(error) or lacks_descriptor(error):
        return not_started(operation, error)
    cause = "it is a file" if isinstance(error, FileExistsError) else error.strerror or str(error)
    remedy = "choose another folder with --data"
    if isinstance(error, PermissionError):
        remedy = f"start the server as the user whose folder it is, or {remedy}"
    elif error.errno == errno.EROFS:
        remedy = f"mount that file system for writing, or {remedy}"
    return UsageError(operation, cause, remedy)


def _not_in_order(error: OSError) -> StorageError:
    """What to say of a stop that could not write its last words."""
    cause = str(error)
    remedy = "nothing that was acknowledged is lost; the next start looks as after a crash"
    if error.filename and (isinstance(error, PermissionError) or error.errno == errno.EROFS):
        folder = Path(error.filename).parent
        cause = f"the folder {folder} cannot be written to: {error.strerror}"
        remedy = f"let the server's user write there; {remedy}"
    return StorageError("stop in order", cause, remedy)
