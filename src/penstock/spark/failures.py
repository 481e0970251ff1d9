"""Whose fault a failure is, from what Spark and Python say about it."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.pipelines.reports import Cause, Failed

# Words that stand in the text of an error when something the pipeline needs is away for a while.
_AWAY: Final = re.compile(
    r"UnavailableError|NoBrokersAvailable|Py4J(?:Network)?Error|JAVA_GATEWAY_EXITED"
    r"|CANNOT_OPEN_SOCKET|Python worker failed to connect"
    r"|Connection(?:Refused|Reset|Aborted)?Error|BrokenPipeError|Connection (?:refused|reset)"
    r"|ExecutorLostFailure|SparkContext (?:was|has been) shut ?down|stopped SparkContext"
    r"|java\.net\.\w+Exception|java\.io\.EOFException|psycopg\.OperationalError|database is locked"
)
# Errors of a query's own making that would come again in every batch.
_PROGRAM: Final = re.compile(r"\b(?:AnalysisException|ParseException|UsageError|NotFoundError)\b")
# The line of a Python traceback that names the error, or what Spark's own errors begin with.
_PYTHON_LINE: Final = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Warning)\b.*$", re.M
)
_SPARK_LINE: Final = re.compile(r"\[(?!STREAM_FAILED|FOREACH_BATCH)[A-Z][A-Z_.]+\] [^\n]*")
_JVM: Final = re.compile(
    r"\n+(?:JVM stacktrace|=== Streaming Query ===|\s+at (?:org|java|scala)\.).*", re.S
)
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+;?\s*$")
_CHARACTERS_MAX: Final = 500


def failed_query(text: str, query: str, batch: int | None) -> Failed:
    """A query ended with an exception.

    Args:
        text: of the exception, as Spark gives it.
        query: its name.
        batch: the last one that it began.
    """
    if _AWAY.search(text):
        cause = Cause.PEER
    elif _PROGRAM.search(text):
        cause = Cause.PROGRAM
    else:
        cause = Cause.BATCH
    return Failed(cause, essence(text), _JVM.sub("", text), query, batch)


def failed_program(error: BaseException, file: Path) -> Failed:
    """The pipeline's file raised an error of its own, not one of a query that runs."""
    text = "".join(traceback.format_exception_only(error)).strip()
    causes = "".join(str(one) + type(one).__name__ for one in _chain(error))
    away = _AWAY.search(causes) is not None
    # Spark's own failure under an action of the file: it may be different the next time.
    job = type(error).__name__ in ("Py4JJavaError", "SparkException", "PythonException")
    cause = Cause.PEER if away else Cause.BATCH if job else Cause.PROGRAM
    return Failed(cause, essence(text), _users_traceback(error, file))


def essence(text: str) -> str:
    """The one line of an error that says what is wrong."""
    text = _JVM.sub("", text)
    found = _PYTHON_LINE.findall(text) or _SPARK_LINE.findall(text) or text.splitlines() or [""]
    return _STATE.sub("", str(found[-1])).strip()[:_CHARACTERS_MAX]


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _users_traceback(error: BaseException, file: Path) -> str:
    """From the first frame of the user's file on: what is above is how we called it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = next((i for i, frame in enumerate(frames) if frame.filename == str(file)), len(frames))
    head = ["Traceback (most recent call last):\n"] if ours < len(frames) else []
    lines = [*head, *traceback.format_list(frames[ours:])]
    return "".join([*lines, *traceback.format_exception_only(error)]).rstrip()
