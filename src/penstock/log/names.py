"""Names of files and folders that are made from a topic's name, which may leave hardly any room."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

from penstock.files import NAME_BYTES_MAX, Files


def longer(name: str, suffix: str) -> str:
    """The name with a suffix; of one too long for it the end is replaced by a digest of the whole."""
    room = NAME_BYTES_MAX - len(suffix.encode())
    if len(name.encode()) <= room:
        return name + suffix
    digest = "~" + blake2b(name.encode(), digest_size=8).hexdigest()
    return name.encode()[: room - len(digest)].decode(errors="ignore") + digest + suffix


def unused(files: Files, folder: Path, name: str, suffix: str) -> Path:
    """A path in the folder, made of name, suffix and a number, that nothing has yet."""
    number = 0
    while files.exists(path := folder / longer(name, f"{suffix}.{number}")):
        number += 1
    return path
