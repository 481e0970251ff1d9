"""What the commands about pipelines share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        metavar="DIR",
        envvar="PENSTOCK_PIPELINES",
        help="Where pipelines are kept.  [default: penstock/pipelines in the user's state folder]",
    ),
]


def root_folder(given: Path | None) -> Path:
    """The folder of all pipelines, by default where XDG says that programs keep their state."""
    if given is not None:
        return given.absolute()
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "penstock" / "pipelines"
