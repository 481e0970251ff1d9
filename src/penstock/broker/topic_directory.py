"""The topics as groups see them: names, sizes, and which names a pattern matches."""

from __future__ import annotations

from uuid import UUID

import re2

from penstock.broker.assignors import Shape
from penstock.broker.group_errors import InvalidRegexError
from penstock.limits import (
    MIB,
    TOPIC_REGEX_CHARS_MAX,
    TOPIC_REGEX_STEPS_MAX,
    TOPIC_REGEXES_KEPT,
)


class TopicDirectory:
    """See the module. `revision` counts the changes, so that groups notice them."""

    def __init__(self) -> None:
        self.revision = 0
        self._shapes: dict[str, Shape] = {}
        self._matches: dict[str, frozenset[str]] = {}

    def put(self, name: str, topic_id: UUID, partitions: int) -> None:
        """A topic is there, or has grown."""
        self._shapes[name] = Shape(topic_id, partitions)
        self._changed()

    def remove(self, name: str) -> None:
        """A topic is gone."""
        del self._shapes[name]
        self._changed()

    def _changed(self) -> None:
        self.revision += 1
        self._matches.clear()

    def get(self, name: str) -> Shape | None:
        """A topic, if it exists."""
        return self._shapes.get(name)

    def matching(self, pattern: str) -> frozenset[str]:
        """The topics whose whole names match."""
        found = self._matches.get(pattern)
        if found is None:
            compiled = compile_pattern(pattern)
            found = frozenset(name for name in self._shapes if compiled.fullmatch(name))
            if len(self._matches) >= TOPIC_REGEXES_KEPT:
                self._matches.clear()
            self._matches[pattern] = found
        return found


def compile_pattern(pattern: str) -> re2._Regexp:
    """A pattern of RE2, which takes linear time whatever a client sends, or InvalidRegexError."""
    operation = "subscribe by a pattern"
    if len(pattern) > TOPIC_REGEX_CHARS_MAX:
        raise InvalidRegexError(operation, f"it is longer than {TOPIC_REGEX_CHARS_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MIB  # gives up early on what would be refused below
    try:
        compiled = re2.compile(pattern, options=options)
    except re2.error as error:
        detail = error.args[0] if error.args else error
        if isinstance(detail, bytes):
            detail = detail.decode(errors="replace")
        raise InvalidRegexError(
            operation, f"{pattern!r} is not valid: {detail}", "write it in RE2's syntax"
        ) from error
    if compiled.programsize > TOPIC_REGEX_STEPS_MAX:
        raise InvalidRegexError(
            operation,
            f"it takes {compiled.programsize} steps where {TOPIC_REGEX_STEPS_MAX} are allowed",
            "repeat less, or subscribe by names",
        )
    return compiled
