"""What a run tells its pipeline, in environment variables, so that the file stays the same everywhere.

The two addresses (a broker and a Spark master), the range to read, and where checkpoints go. Without
any of them a file runs as it is: on this machine, as a stream.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

BOOTSTRAP: Final = "PENSTOCK_BOOTSTRAP"
MASTER: Final = "PENSTOCK_MASTER"
CHECKPOINTS: Final = "PENSTOCK_CHECKPOINTS"
FROM: Final = "PENSTOCK_FROM"
UNTIL: Final = "PENSTOCK_UNTIL"
REPORTS: Final = "PENSTOCK_REPORTS"
LOCK: Final = "PENSTOCK_LOCK"
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
DEFAULT_MASTER: Final = "local[*]"


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range, as the source's options say it."""

    option: str
    """Offsets or Timestamp: the end of the option's name."""
    value: str

    @classmethod
    def at_offsets(cls, value: str) -> Bound:
        """Earliest, latest, or {"topic": {"partition": offset}}."""
        return cls("Offsets", value)

    @classmethod
    def at_time(cls, time_ms: int) -> Bound:
        """The first records of that time or later; milliseconds since 1970."""
        return cls("Timestamp", str(time_ms))

    def options(self, which: str, topics: str) -> dict[str, str]:
        """As options of a source that reads these topics.

        Args:
            which: `starting` or `ending`.
            topics: names, separated by commas. Offsets of other topics are for other sources.
        """
        if not self.value.startswith("{"):
            return {which + self.option: self.value}
        read = {topic.strip() for topic in topics.split(",")}
        found = {name: at for name, at in json.loads(self.value).items() if name in read}
        return {which + self.option: json.dumps(found)} if found else {}


@dataclass(frozen=True, slots=True)
class Terms:
    """See the module."""

    bootstrap: str = DEFAULT_BOOTSTRAP
    master: str = DEFAULT_MASTER
    checkpoints: str | None = None
    starting: Bound | None = None
    ending: Bound | None = None

    @property
    def bounded(self) -> bool:
        """Whether the pipeline ends by itself."""
        return self.ending is not None

    def source_options(self, topics: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a stream: the range of the run takes the place of the file's own."""
        options = dict(given)
        for which, bound in (("starting", self.starting), ("ending", self.ending)):
            if bound is not None and (ours := bound.options(which, topics)):
                kept = {k: v for k, v in options.items() if not k.lower().startswith(which)}
                options = {**kept, **ours}
        return options

    def environment(self) -> dict[str, str]:
        """The same as variables."""
        texts = {
            BOOTSTRAP: self.bootstrap,
            MASTER: self.master,
            CHECKPOINTS: self.checkpoints,
            FROM: _text(self.starting),
            UNTIL: _text(self.ending),
        }
        return {name: text for name, text in texts.items() if text is not None}


def current_terms(environ: Mapping[str, str] = os.environ) -> Terms:
    """What this process was told."""
    return Terms(
        environ.get(BOOTSTRAP, DEFAULT_BOOTSTRAP),
        environ.get(MASTER, DEFAULT_MASTER),
        environ.get(CHECKPOINTS),
        _bound(environ.get(FROM)),
        _bound(environ.get(UNTIL)),
    )


def _text(bound: Bound | None) -> str | None:
    return None if bound is None else f"{bound.option}={bound.value}"


def _bound(text: str | None) -> Bound | None:
    if not text:
        return None
    option, _, value = text.partition("=")
    return Bound(option, value)
