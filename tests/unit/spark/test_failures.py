"""Whose fault a failure is, by texts that Spark 4.3 really gave."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from penstock.errors import UnavailableError, UsageError
from penstock.pipelines.reports import Cause
from penstock.spark.failures import essence, failed_program, failed_query

FOREACH = """[STREAM_FAILED] Query [id = a6484eed-78d3-46e0-a917-9646b6acae5f, runId = \
0fc30a0a-7344-4f9c-85fe-458ab4f6fcdd] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] \
An error occurred in the user provided function in foreach batch sink. Reason: An exception was \
raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "pyspark/sql/utils.py", line 163, in call
    self.func(DataFrame(jdf, wrapped_session_jdf), batch_id)
  File "shop.py", line 14, in bad
    raise ValueError("broken on purpose")
%s
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = a6484eed-78d3-46e0-a917-9646b6acae5f, runId = 0fc30a0a-7344-4f9c-85fe-458ab4f6fcdd]
Logical Plan:
~WriteToMicroBatchDataSourceV1 ForeachBatchSink
"""
WORKER = """pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the \
Python worker:
Traceback (most recent call last):
  File "shop.py", line 18, in pyb
    for x in it: raise KeyError("in worker")
KeyError: 'in worker'"""
DIVISION = """pyspark.errors.exceptions.captured.ArithmeticException: [DIVIDE_BY_ZERO] Division by \
zero. SQLSTATE: 22012
== SQL (line 1, position 1) ==
1/(value-value) as x"""
ANALYSIS = """pyspark.errors.exceptions.captured.AnalysisException: [UNRESOLVED_COLUMN] A column with \
name `nocol` cannot be resolved. SQLSTATE: 42703;
'Project ['nocol]"""
AWAY = "penstock.errors.UnavailableError: cannot read topics: 127.0.0.1:9 does not answer"


@pytest.mark.parametrize(
    ("line", "cause", "error"),
    [
        ("ValueError: broken on purpose", Cause.BATCH, "ValueError: broken on purpose"),
        (WORKER, Cause.BATCH, "KeyError: 'in worker'"),
        (DIVISION, Cause.BATCH, "[DIVIDE_BY_ZERO] Division by zero."),
        (ANALYSIS, Cause.PROGRAM, "cannot be resolved."),
        (AWAY, Cause.PEER, AWAY),
        ("psycopg.OperationalError: the server is starting up", Cause.PEER, "starting up"),
        ("SparkException: Python worker failed to connect back", Cause.PEER, "connect back"),
    ],
)
def test_a_query_that_failed(line: str, cause: Cause, error: str) -> None:
    failed = failed_query(FOREACH % line, "totals", 7)
    assert (failed.cause, failed.query, failed.batch) == (cause, "totals", 7)
    assert failed.error.endswith(error)
    assert "Streaming Query ===" not in failed.detail


def test_sparks_own_words_where_there_is_no_python() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: [CAST_INVALID_INPUT] The value"
    )
    assert essence(text) == "[CAST_INVALID_INPUT] The value"
    assert essence("something else") == "something else"


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (NameError("x"), Cause.PROGRAM),
        (SyntaxError("x"), Cause.PROGRAM),
        (ImportError("no shop"), Cause.PROGRAM),
        (UsageError("cannot", "it is wrong"), Cause.PROGRAM),
        (UnavailableError("cannot", "the broker is away"), Cause.PEER),
        (ConnectionRefusedError("x"), Cause.PEER),
        (Py4JError("An error occurred while calling o35.awaitTermination"), Cause.PEER),
    ],
)
def test_a_file_that_failed(error: Exception, cause: Cause) -> None:
    assert failed_program(error, Path("shop.py")).cause is cause


def test_what_happened_because_something_is_away_is_no_fault_of_the_file() -> None:
    wrapped = RuntimeError("no totals")
    wrapped.__cause__ = UnavailableError("cannot", "the broker is away")
    assert failed_program(wrapped, Path("shop.py")).cause is Cause.PEER


def test_the_traceback_begins_in_the_users_file(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text("def total():\n    return 1 / 0\ntotal()\n")
    with pytest.raises(ZeroDivisionError) as raised:
        exec(compile(file.read_bytes(), str(file), "exec"), {})
    detail = failed_program(raised.value, file).detail
    assert detail.splitlines()[1] == f'  File "{file}", line 3, in <module>'
    assert detail.endswith("ZeroDivisionError: division by zero")
    assert "test_failures" not in detail
