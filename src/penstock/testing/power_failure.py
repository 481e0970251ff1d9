"""What is certain on a disk, and what a power failure makes of the rest.

A file is its bytes as processes see them, the bytes the disk certainly has, and the writes between;
a folder likewise with names. `PowerFailure` draws what survives of everything in between.
This module knows nothing of operations, failures or threads: penstock.testing.faulty does.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.memory_files import Binding, Content, Folder, Node


class Keep(enum.Enum):
    """What the next process finds of everything that was not certain."""

    NOTHING = "nothing"
    """Power failure: neither unsynced bytes nor unsynced names."""
    PAGES_512 = "pages of 512"
    """Power failure: each 512-byte page as some write left it, in any order; likewise names."""
    PAGES_4096 = "pages of 4096"
    """The same with pages of 4096 bytes."""
    TORN_512 = "last write torn at 512"
    """Power failure: everything but the end of the very last write, cut at a 512-byte boundary."""
    TORN_4096 = "last write torn at 4096"
    """The same with a 4096-byte boundary."""
    NAMES = "names without data"
    """Power failure: all names are there, unsynced bytes and sizes are not."""
    ZEROS = "names and sizes without data"
    """Power failure: names and grown sizes are there, unsynced bytes read as zeros."""
    EVERYTHING = "everything"
    """kill -9: the page cache survives, and is still no more certain than it was."""


POWER_FAILURES = tuple(policy for policy in Keep if policy is not Keep.EVERYTHING)


@dataclass
class Write:
    """A change of bytes that is not certain yet; data None stands for a truncation to position."""

    number: int
    position: int
    data: bytes | None

    def apply(self, image: bytearray) -> None:
        """Change the image as the disk would be changed."""
        if self.data is None:
            del image[self.position :]
            image.extend(bytes(self.position - len(image)))
        else:
            image.extend(bytes(max(0, self.position - len(image))))
            image[self.position : self.position + len(self.data)] = self.data


@dataclass
class Names:
    """A change of names that is not certain yet; the bindings are kept or lost together."""

    number: int
    bindings: list[Binding]


class DiskContent(Content):
    """A file: its bytes as processes see them, as the disk has them, and what lies between."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = bytearray()
        self.pending: list[Write] = []

    def sync(self, upto: int, size: int) -> None:
        """Make certain what was written up to operation upto, when the length was size."""
        for write in self.pending:
            if write.number <= upto:
                write.apply(self.disk)
        self.pending = [write for write in self.pending if write.number > upto]
        # Shorter only after a failed sync dropped pages: the length is metadata and still arrives.
        self.disk.extend(bytes(max(0, size - len(self.disk))))


class DiskFolder(Folder):
    """A folder: its names as processes see them, and as the disk has them."""

    def __init__(self) -> None:
        super().__init__()
        self.disk: dict[str, Node] = {}


class PowerFailure:
    """Decides for one crash what survives.

    Args:
        policy: any but EVERYTHING, which is not a power failure.
        rng: draws what the policy leaves open.
        names: the changes of names that were not certain, oldest first.
    """

    def __init__(self, policy: Keep, rng: random.Random, names: list[Names]) -> None:
        assert policy in POWER_FAILURES
        self._policy = policy
        self._rng = rng
        self._last_write: int | None = None
        self._tables: dict[int, dict[str, Node]] = {}
        self.names_kept = self._draw_names(names)

    def tree(self, root: Folder) -> DiskFolder:
        """What is found below root after the crash; all of it is certain."""
        found = walk(root, Path(), self._names)
        writes = (write for _, content in found for write in content.pending if write.data)
        self._last_write = max((write.number for write in writes), default=None)
        return self._folder(root)

    def _folder(self, folder: Folder) -> DiskFolder:
        assert isinstance(folder, DiskFolder)
        result = DiskFolder()
        for name, node in sorted(self._names(folder).items()):
            if isinstance(node, Folder):
                result.entries[name] = self._folder(node)
            else:
                assert isinstance(node, DiskContent)
                content = DiskContent()
                content.disk = self._bytes(node)
                content.data = bytearray(content.disk)
                result.entries[name] = content
        result.disk.update(result.entries)
        return result

    def _names(self, folder: DiskFolder) -> dict[str, Node]:
        return self._tables.setdefault(id(folder), dict(folder.disk))

    def _draw_names(self, names: list[Names]) -> str:
        """Choose which unsynced changes of names made it to the disk; says how."""
        chosen = "all"
        if self._policy is Keep.NOTHING:
            chosen = "none"
        elif self._policy in (Keep.PAGES_512, Keep.PAGES_4096):
            chosen = self._rng.choice(("none", "all", "a prefix", "any order"))
        prefix = self._rng.randint(0, len(names))
        lost: set[tuple[int, str]] = set()
        for index, change in enumerate(names):
            touched = {(id(folder), name) for folder, name, _ in change.bindings}
            kept = {
                "none": False,
                "all": True,
                "a prefix": index < prefix,
                # Any subset in which no name skips a step of its own history.
                "any order": not touched & lost and self._rng.random() < 0.5,
            }[chosen]
            if not kept:
                lost |= touched
                continue
            for folder, name, node in change.bindings:
                assert isinstance(folder, DiskFolder)
                rebind(self._names(folder), name, node)
        return chosen

    def _bytes(self, content: DiskContent) -> bytearray:
        image = bytearray(content.disk)
        if not content.pending or self._policy in (Keep.NOTHING, Keep.NAMES):
            return image
        if self._policy is Keep.ZEROS:
            image.extend(bytes(max(0, len(content.data) - len(image))))
            return image
        if self._policy is Keep.PAGES_512:
            return self._pages(content, 512)
        if self._policy is Keep.PAGES_4096:
            return self._pages(content, 4096)
        page = 512 if self._policy is Keep.TORN_512 else 4096
        for write in content.pending:
            self._tear(write, page).apply(image)
        return image

    def _tear(self, write: Write, page: int) -> Write:
        if write.number != self._last_write or write.data is None:
            return write
        # Disks tear at the boundaries of their sectors, wherever the write begins.
        first = -write.position % page
        cuts = [0, *range(first, len(write.data), page)]
        return Write(write.number, write.position, write.data[: self._rng.choice(cuts)])

    def _pages(self, content: DiskContent, page: int) -> bytearray:
        versions = [bytearray(content.disk)]
        for write in content.pending:
            versions.append(bytearray(versions[-1]))
            write.apply(versions[-1])
        size = len(self._rng.choice(versions))
        image = bytearray(size)
        for start in range(0, size, page):
            piece = self._rng.choice(versions)[start : min(start + page, size)]
            image[start : start + len(piece)] = piece
        return image


def rebind(table: dict[str, Node], name: str, node: Node | None) -> None:
    """Let a name stand for a node, or for nothing."""
    if node is None:
        table.pop(name, None)
    else:
        table[name] = node


def names_on_disk(folder: Folder) -> dict[str, Node]:
    """The names in a folder that are certain."""
    assert isinstance(folder, DiskFolder)
    return folder.disk


def walk(
    folder: Folder, path: Path, names: Callable[[DiskFolder], dict[str, Node]]
) -> Iterator[tuple[Path, DiskContent]]:
    """All files below a folder, by the names that a function gives for each folder."""
    assert isinstance(folder, DiskFolder)
    for name, node in sorted(names(folder).items()):
        if isinstance(node, Folder):
            yield from walk(node, path / name, names)
        else:
            assert isinstance(node, DiskContent)
            yield path / name, node
