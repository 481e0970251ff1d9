"""The data folder: opens it, makes and removes partitions in it, and closes it in order.

DIR/lock                 held by the process that serves the folder
DIR/format.json          version of all this, and the cluster's id
DIR/catalog.journal      topics (catalog.py)
DIR/positions.journal    durable ends (positions.py)
DIR/offsets.journal      where consumer groups stand (offsets.py)
DIR/queues.journal       what share groups have finished (broker/queues/journal.py)
DIR/rounds-N.journal     what commit rounds have synced for many partitions at once (round_journal.py)
DIR/clean                exists only after an orderly stop
DIR/reserve              given up when the disk is full (space.py)
DIR/topics/NAME-N/       a partition: segments, indexes, checkpoints, topic.json
DIR/quarantine/          bytes that recovery cut; never read again, never removed by Penstock
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid4

from penstock.clock import Clock
from penstock.errors import (
    DiskFullError,
    FormatError,
    StorageError,
    UnreadableLogError,
    UnsettledLogError,
)
from penstock.files import (
    Files,
    lacks_descriptor,
    read_whole,
    sync_all,
    write_atomically,
)
from penstock.log.catalog import Catalog, TopicEntry, read_identity, write_identities
from penstock.log.change_journal import ChangeJournal
from penstock.log.commit import Defer, GroupCommit, Run, SyncFiles
from penstock.log.compaction import Compactor, StartPass
from penstock.log.earlier_rounds import EarlierRounds
from penstock.log.journal import NOT_UNDERSTOOD
from penstock.log.memory_space import MemorySpace
from penstock.log.names import longer
from penstock.log.offsets import OffsetsJournal
from penstock.log.partition import BatchObserver, Partition, new_segment, write_checkpoints
from penstock.log.positions import PartitionId, Position, Positions
from penstock.log.recovery import Recovery
from penstock.log.removal import DELETED, deleted_name, remove_files, remove_tree, retire
from penstock.log.repair import finish_repair
from penstock.log.round_journal import is_round_journal
from penstock.log.segment import Segment
from penstock.log.settings import Durability, LogSettings
from penstock.log.space import DiskSpace, found_room, means_full
from penstock.memory_files import MemoryFiles

FORMAT_VERSION = 1
_FORMAT_FILE = "format.json"
_CATALOG = "catalog.journal"
# What stands in the folder without these two, if the first start was interrupted or somebody has put
# the folder together again; and what a file system puts into every one that it begins with.
_OTHER_NAMES = frozenset(
    {"lock", "topics", f"{_FORMAT_FILE}.tmp", "positions.journal", "offsets.journal"}
    | {"queues.journal", "clean", "reserve", "quarantine", "lost+found"}
)
_log = logging.getLogger(__name__)

Background = Callable[[Callable[[], None]], None]
_Journal = TypeVar("_Journal", bound=ChangeJournal)


class LogStore:
    """See the module. One process at a time: the caller holds the folder's lock."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        clock: Clock,
        *,
        run: Run,
        defer: Defer,
        sync: SyncFiles | None = None,
        background: Background,
        compact: StartPass | None = None,
        space: DiskSpace | None = None,
        memory: MemorySpace | None = None,
    ) -> None:
        self._files = files
        self._folder = folder
        self._clock = clock
        self._background = background
        self._memory_files = MemoryFiles()
        self._left_out: set[Path] = set()
        self._topics = folder / "topics"
        files.make_folder(self._topics)
        self.cluster_id = self._check_format()
        self.clean = files.exists(folder / "clean")
        self.space = space or DiskSpace(files, folder, clock)
        self.space.begin()
        self.memory = memory or MemorySpace(clock)
        """What topics of durability `memory` may hold."""
        self.positions = Positions(files, folder / "positions.journal", clock)
        self.positions.make_room = self.space.found_full
        self.catalog = Catalog(files, folder / _CATALOG)
        self.epoch = self._begin_epoch(certain=self._settle_catalog())
        """What batches are marked with that are appended from now on (epochs.py)."""
        self.positions.forget_topics(self.catalog.deleted)
        self._earlier_rounds = EarlierRounds(files, folder)
        self.offsets = self.open_journal("offsets.journal", OffsetsJournal)
        self.commit = GroupCommit(files, folder, self.positions, run=run, defer=defer, sync=sync)
        self.compactor = Compactor(files, self.commit, clock, compact) if compact else None
        """What compacts partitions; None where nobody can be asked to make a pass."""

    def open_journal(self, name: str, kind: Callable[[Files, Path], _Journal]) -> _Journal:
        """Open one of the folder's journals of changes, with what a crash may have left of it."""
        journal = kind(self._files, self._folder / name)
        journal.make_room = self.space.found_full
        if journal.torn:
            self._put_aside(name, journal.torn)
        if not self.clean:
            journal.renew()
        return journal

    @property
    def folder(self) -> Path:
        """The data folder."""
        return self._folder

    def free_bytes(self) -> int:
        """Room left on its disk."""
        return self._files.free_bytes(self._folder)

    def total_bytes(self) -> int:
        """Size of its disk."""
        return self._files.total_bytes(self._folder)

    def _check_format(self) -> str:
        path = self._folder / _FORMAT_FILE
        if not self._files.exists(path):
            cluster_id = _base64_id(uuid4())
            fields = {"format": FORMAT_VERSION, "cluster_id": cluster_id}
            write_atomically(self._files, path, json.dumps(fields).encode() + b"\n")
            return cluster_id
        try:
            fields = json.loads(read_whole(self._files, path))
            version, cluster_id = int(fields["format"]), str(fields["cluster_id"])
        except NOT_UNDERSTOOD as error:
            raise FormatError(
                f"open data folder {self._folder}",
                f"format.json is damaged ({error})",
                f'restore it: {{"format": {FORMAT_VERSION}, "cluster_id": "ANY-22-CHARACTERS"}}',
            ) from error
        if version > FORMAT_VERSION:
            raise FormatError(
                f"open data folder {self._folder}",
                f"it has format {version} and this Penstock knows {FORMAT_VERSION}",
                "use the Penstock that wrote it, or a newer one",
            )
        return cluster_id

    def _settle_catalog(self) -> bool:
        """Reconcile the journal with what the folders say of themselves; whether all of it is there."""
        whole = not self.catalog.torn
        if self.catalog.torn:
            self._put_aside(_CATALOG, self.catalog.torn)
        if not self.clean:
            # What a killed process had created is in use from here on: its names must last, and before
            # the catalog that speaks of them. Or a power failure could leave a topic of which it took
            # the first segment and not the second.
            self._files.sync_all(self._folder)
            self.catalog.renew()
        changed = False
        for name in self._files.list(self._topics):
            entry = read_identity(self._files, self._topics / name)
            if entry is None or entry.id in self.catalog.deleted:
                continue
            known = self.catalog.topics.get(entry.id)
            if known is None or entry.revision > known.revision:
                if known is None:
                    whole = False
                    _log.warning("topic %s was not in the catalog; its folder was", entry.name)
                self.catalog.put(entry)
                changed = True
        if changed:
            self.catalog.sync()
        return whole

    def _begin_epoch(self, *, certain: bool) -> int:
        """Count this start, durably: no two may mark what they append alike."""
        known = self.catalog.epoch
        if known is None:  # a new folder, or one in which everything is marked with 0
            known = 0 if self.catalog.topics else -1
        epoch = known + 1
        if not certain:
            # The last start may be missing. Nobody starts a server more often than once a minute.
            epoch = max(epoch, self._clock.wall_ms() // 60_000)
        if found_room(partial(self.catalog.begin_epoch, epoch), self.space.found_full):
            self.catalog.sync()
        else:
            _log.warning("no room to count this start: readers may not notice what a crash takes")
        return epoch

    def _put_aside(self, journal: str, tail: bytes) -> None:
        self._files.make_folder(self._folder / "quarantine")
        kept = self._folder / "quarantine" / f"{journal}-{self._clock.wall_ms()}.tail"
        write_atomically(self._files, kept, tail)
        _log.warning("the end of %s was not whole; kept as %s", journal, kept.name)

    def begin(self) -> None:
        """From here on the folder is in use: the next start is after a crash, unless we close."""
        marker = self._folder / "clean"
        if self._files.exists(marker):
            self._files.remove(marker)
            self._files.sync_folder(self._folder)
        self._earlier_rounds.settle(self.catalog.topics)
        self._clear_strangers()

    def _clear_strangers(self) -> None:
        """Remove the folders of deleted topics; put aside those that belong to no topic."""
        expected = {
            self.partition_folder(entry.name, number).name
            for entry in self.catalog.topics.values()
            for number in range(entry.partitions)
        }
        deleted: set[UUID] = set()
        going: list[Path] = []
        for name in self._files.list(self._topics):
            folder = self._topics / name
            entry = None if name in expected else read_identity(self._files, folder)
            if entry is not None and entry.id in self.catalog.deleted:
                deleted.add(entry.id)
                if not name.endswith(DELETED):
                    # Its name must be free before a topic of that name is made again.
                    folder = self._topics / deleted_name(name, entry.id)
                    self._files.rename(self._topics / name, folder)
                going.append(folder)
            elif name not in expected:
                aside = self._folder / "quarantine" / longer(name, f"-{self._clock.wall_ms()}")
                self._files.make_folder(aside.parent)
                self._files.sync_folder(self._folder)
                self._files.rename(folder, aside)
                _log.warning(
                    "folder %s belongs to no topic; kept as quarantine/%s", name, aside.name
                )
        self._background(partial(self._remove_folders, going))
        self.catalog.deleted = deleted

    # -- partitions

    def partition_folder(self, topic: str, partition: int) -> Path:
        """Kafka's naming."""
        return self._topics / f"{topic}-{partition}"

    def open_partition(
        self, entry: TopicEntry, partition: int, settings: LogSettings, observer: BatchObserver
    ) -> Partition:
        """Open or create one partition of a topic that is in the catalog.

        Raises:
            DamagedLogError: see recovery.py; or its files cannot be read, or there is no room for what
                its recovery has to write; other partitions are not concerned.
            StorageError: no partition could be opened now.
        """
        folder = self.partition_folder(entry.name, partition)
        opened = partial(self._open_partition, entry, partition, folder, settings, observer)
        try:
            return self._in_reserved_room(opened)
        except OSError as error:
            raise self._not_opened(folder, error) from error

    def _in_reserved_room(self, opened: Callable[[], Partition]) -> Partition:
        """Open a partition, if need be in the room that was kept for such a case."""
        try:
            return opened()
        except OSError as error:
            if not means_full(error):
                raise
        self.space.found_full()
        return opened()

    def _not_opened(self, folder: Path, error: OSError) -> StorageError:
        """What to say of a partition that the system does not let us open."""
        operation = f"open {folder.name}"
        if lacks_descriptor(error):
            # It would be the same for all that follow, and none of them is to blame.
            return not_started(operation, error)
        self._left_out.add(folder)
        if means_full(error):
            # Not so here: most have nothing to write.
            return UnsettledLogError(
                operation,
                f"there is no room for what its recovery has to write ({error})",
                "free some space on that disk, and restart; nothing of it is lost meanwhile",
            )
        return UnreadableLogError(
            operation,
            f"its files cannot be read: {error}",
            f"let the server read {folder}, or restore it, and restart",
        )

    def _open_partition(
        self,
        entry: TopicEntry,
        partition: int,
        folder: Path,
        settings: LogSettings,
        observer: BatchObserver,
    ) -> Partition:
        identity = PartitionId(entry.id, partition)
        if settings.durability is Durability.MEMORY:
            return self._partition_in_memory(entry, identity, settings, observer)
        known = self.positions.get(identity)
        finish_repair(self._files, folder)
        if not self._files.exists(folder):
            self._create_folder(entry, folder)
        recovery = Recovery(
            self._files,
            folder,
            self._folder / "quarantine",
            settings,
            known,
            observer,
            self._earlier_rounds.of(identity),
        )
        recovered = recovery.run(clean=self.clean)
        self._earlier_rounds.opened(identity)
        if recovered.scanned_bytes and not self.clean:
            _log.info("%s: checked %d bytes", folder.name, recovered.scanned_bytes)
        # Where a power failure may take the end, it may take it to before the start.
        start = min(known.start, recovered.segments[-1].next_offset)
        return self._partition_on_disk(
            entry, identity, settings, observer, recovered.segments, start
        )

    def _partition_on_disk(
        self,
        entry: TopicEntry,
        identity: PartitionId,
        settings: LogSettings,
        observer: BatchObserver,
        segments: list[Segment],
        start: int,
    ) -> Partition:
        folder, files = self.partition_folder(entry.name, identity.partition), self._files
        return Partition(
            identity, entry.name, folder, files, settings, observer, segments, start, self.epoch
        )

    def _partition_in_memory(
        self,
        entry: TopicEntry,
        identity: PartitionId,
        settings: LogSettings,
        observer: BatchObserver,
    ) -> Partition:
        folder = self.partition_folder(entry.name, identity.partition)
        files = self._memory_files
        files.make_folder(folder)
        segments = [new_segment(files, folder, 0, settings)]
        return Partition(
            identity,
            entry.name,
            folder,
            files,
            settings,
            observer,
            segments,
            0,
            self.epoch,
            self.memory,
        )

    def _create_folder(self, entry: TopicEntry, folder: Path) -> None:
        self._files.make_folder(folder)
        write_identities(self._files, self._topics, [folder], entry)

    def create_partitions(
        self,
        entry: TopicEntry,
        numbers: Iterable[int],
        settings: LogSettings,
        observers: Callable[[], BatchObserver],
    ) -> list[Partition]:
        """Make new partitions; they and the catalog's entry are durable after the next round."""
        self._check_metadata()
        partitions: list[Partition] = []
        made: list[Path] = []
        try:
            for number in numbers:
                folder = self.partition_folder(entry.name, number)
                if not self._files.exists(folder):
                    made.append(folder)  # what was there before is not ours to remove
                partitions.append(self._make_partition(entry, number, settings, observers()))
            self.put(entry, [partition.folder for partition in partitions])
        except (OSError, StorageError):
            partitions.clear()  # their files close, which the removal may need
            self._undo_creation(made)
            raise
        return partitions

    def _make_partition(
        self, entry: TopicEntry, number: int, settings: LogSettings, observer: BatchObserver
    ) -> Partition:
        folder = self.partition_folder(entry.name, number)
        self._files.make_folder(folder)
        identity = PartitionId(entry.id, number)
        if settings.durability is Durability.MEMORY:
            return self._partition_in_memory(entry, identity, settings, observer)
        segments = [new_segment(self._files, folder, 0, settings)]
        return self._partition_on_disk(entry, identity, settings, observer, segments, 0)

    def _undo_creation(self, folders: list[Path]) -> None:
        for files in (self._memory_files, self._files):
            for folder in folders:
                # What stays belongs to no topic, and the next start puts it aside.
                with suppress(OSError):
                    remove_tree(files, folder)

    def put_quota(self, client_id: str | None, rates: dict[str, float]) -> None:
        """Record the quota of a client id, or of all others; durable after the next round."""
        self._check_metadata()
        self.catalog.put_quota(client_id, rates)
        self.commit.metadata_changed(self.catalog.sync)

    def put_group_config(self, group: str, config: dict[str, str]) -> None:
        """Record the settings of a group; durable after the next round."""
        self._check_metadata()
        self.catalog.put_group_config(group, config)
        self.commit.metadata_changed(self.catalog.sync)

    def put(self, entry: TopicEntry, folders: list[Path] | None = None) -> None:
        """Record a new or changed topic, durable after the next round.

        In the catalog first: if that fails nothing else has been said. Then beside the partitions,
        in the folders given or all of them.
        """
        self._check_metadata()
        self.catalog.put(entry)
        if folders is None:
            every = [self.partition_folder(entry.name, n) for n in range(entry.partitions)]
            folders = [folder for folder in every if self._is_described(folder)]
        self.commit.metadata_changed(
            partial(self._describe_beside, folders, entry), self.catalog.sync
        )

    def _is_described(self, folder: Path) -> bool:
        # What is left out is not written to: an error there would be taken for one of all metadata.
        return folder not in self._left_out and self._files.exists(folder)

    def _describe_beside(self, folders: list[Path], entry: TopicEntry) -> None:
        """Write what the catalog says of a topic beside its partitions. Runs on the commit thread."""
        write = partial(write_identities, self._files, self._topics, folders, entry)
        if not found_room(write, self.space.found_full):
            # It is for the day on which the catalog is damaged; the topic does not depend on it.
            _log.warning("%s: its description beside its partitions is not written", entry.name)
            # But the names of new partitions do, which are synced together with it.
            sync_all(self._files, self._topics)

    def delete_topic(
        self, entry: TopicEntry, partitions: Sequence[Partition], gone: Callable[[], None]
    ) -> None:
        """Remove a topic. The catalog's entry decides; the folders go in the background.

        Args:
            entry: the topic.
            partitions: those of its partitions that are in service.
            gone: called when the deletion is durable; only then may its name be used again.
        """
        self._check_metadata()
        self.catalog.delete(entry.id)
        for partition in partitions:
            self.commit.forget(partition)
            partition.offline = "the topic was deleted"
            if partition.memory is not None:
                self._remove_from_memory(partition)
        renames: list[tuple[Path, Path]] = []
        for number in range(entry.partitions):
            folder = self.partition_folder(entry.name, number)
            self._left_out.discard(folder)
            if self._files.exists(folder):
                renames.append((folder, folder.with_name(deleted_name(folder.name, entry.id))))
        # In this order: a folder loses its name only when the catalog's word is durable.
        self.commit.metadata_changed(self.catalog.sync, partial(self._rename_folders, renames))

        def durable() -> None:
            if self.commit.metadata_failed is None:
                self.commit.deleted(partitions)
                gone()
                self._background(partial(self._remove_folders, [new for _, new in renames]))

        self.commit.after(durable)

    def _remove_from_memory(self, partition: Partition) -> None:
        remove_tree(self._memory_files, partition.folder)
        partition.let_go_of_files()  # a fetch that waits may hold the partition for a while
        self.memory.give_back(partition.size_bytes)

    def _check_metadata(self) -> None:
        error = self.commit.metadata_failed
        if error is not None:
            raise StorageError("change topics", f"the disk failed: {error}", "restart the server")

    def _rename_folders(self, renames: list[tuple[Path, Path]]) -> None:
        """Runs on the commit thread."""
        for old, new in renames:
            self._files.rename(old, new)
        self._files.sync_folder(self._topics)

    def _remove_folders(self, folders: list[Path]) -> None:
        for folder in folders:
            remove_tree(self._files, folder)

    def remove_segments(self, partition: Partition, segments: list[Segment]) -> None:
        """Remove segments that the partition has dropped, oldest first.

        The commit thread takes their names away, in order with all other changes of names; the data
        goes in the background.
        """
        if partition.memory is not None:
            self._remove_segments_from_memory(segments)
            return
        files = self._files
        removed: list[Path] = []
        self.commit.metadata_changed(partial(retire, files, partition.folder, segments, removed))
        self.commit.after(lambda: self._background(partial(remove_files, files, removed)))

    def _remove_segments_from_memory(self, segments: list[Segment]) -> None:
        # At once: there is no disk to wait for, and the names in memory are the loop's alone. Only the
        # freeing takes long.
        files = self._memory_files
        paths = [path for segment in segments for path in segment.paths()]
        held = [files.open(path) for path in paths]
        for path in paths:
            files.remove(path)
        for segment in segments:
            segment.let_go_of_files()
        self._background(held.clear)

    # -- the end

    def close(self, partitions: Iterable[Partition]) -> None:
        """Write every checkpoint and the mark of an orderly stop. No round may be running."""
        assert self.commit.idle
        kept = [partition for partition in partitions if partition.memory is None]
        for partition in kept:
            with suppress(OSError):  # then the disk keeps what nobody needs, and no harm is done
                partition.give_back_room()
            partition.let_go_of_files()  # they may have all descriptors, and closing takes a few
        self._files.sync_all(self._folder)
        whole = [partition for partition in kept if partition.offline is None]
        write_checkpoints(
            self._files, self._folder, [c for p in whole if (c := p.final_checkpoint())]
        )
        ends = {p.identity: Position(p.end_offset, p.start_offset) for p in whole}
        self.positions.note(ends)
        self.positions.rewrite()
        if len(whole) == len(kept):
            self.commit.remove_round_journal()
        # What was left out has not been checked since a crash that may lie before this start.
        checked = len(whole) == len(kept) and not self._left_out
        if checked and self.commit.metadata_failed is None:
            write_atomically(self._files, self._folder / "clean", b"stopped in order\n")


def foreign_names(names: Iterable[str]) -> list[str]:
    """What speaks against a folder: names that are not ours, where nothing says that it is ours."""
    found = set(names)
    if found & {_FORMAT_FILE, _CATALOG}:
        return []
    unknown = [name for name in found - _OTHER_NAMES if not is_round_journal(name)]
    return sorted(name for name in unknown if not name.startswith("."))


def not_started(operation: str, error: OSError) -> StorageError:
    """What to say of a start that fails for something that is no single partition's."""
    if means_full(error):
        return DiskFullError(
            operation,
            f"there is no room for what a start has to write ({error})",
            "free some space on that disk, and start again",
        )
    if lacks_descriptor(error):
        return StorageError(
            operation,
            f"too many files are open ({error})",
            "raise the limit (ulimit -n; LimitNOFILE in systemd) to three for each partition",
        )
    return StorageError(operation, str(error), "check that disk and the rights on the folder")


def _base64_id(value: UUID) -> str:
    """Kafka's text form of a UUID, which is what a cluster id looks like."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()
