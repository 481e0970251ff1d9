"""Reports of tasks to the planner, over a real connection."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import pytest

from penstock.client.cluster import Place
from penstock.spark.time.reports import Report, Reports, ReportTo, listen

A = Place("t", 0)


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def to(reports: Reports) -> Iterator[ReportTo]:
    """The broker is only looked for: anything that accepts connections will do."""
    with socket.create_server(("127.0.0.1", 0)) as broker:
        yield listen(reports, f"127.0.0.1:{broker.getsockname()[1]}")


def test_a_report_has_arrived_when_it_was_sent(reports: Reports, to: ReportTo) -> None:
    assert to.host == "127.0.0.1"
    to.send(Report(A, 0, 10, 123))
    to.send(Report(Place("ü", 1), 0, 5, None))
    assert reports.of(A, 0, 10) == Report(A, 0, 10, 123)
    assert reports.of(Place("ü", 1), 0, 5) == Report(Place("ü", 1), 0, 5, None)


def test_who_does_not_know_the_word_is_not_heard(
    reports: Reports, to: ReportTo, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        to._replace(word="guess").send(Report(A, 0, 10, 123))
        with socket.create_connection((to.host, to.port), 5) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert stranger.recv(1) in (b"", b"\n")
    assert reports.of(A, 0, 10) is None
    assert "without the word" in caplog.text
    assert "could not be read" in caplog.text


def test_nobody_there_is_no_error(to: ReportTo, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    to._replace(port=port).send(Report(A, 0, 10, 123))
    assert "was not reported" in caplog.text


def test_pieces_make_a_range_if_none_is_missing(reports: Reports) -> None:
    reports.add(Report(A, 5, 10, 7))
    assert reports.of(A, 0, 10) is None
    reports.add(Report(A, 0, 5, None))
    assert reports.of(A, 0, 10) == Report(A, 0, 10, 7)
    assert reports.of(A, 0, 7) is None
    assert reports.of(A, 5, 10) == Report(A, 5, 10, 7)
    assert reports.of(A, 10, 10) == Report(A, 10, 10, None)


def test_what_is_in_the_checkpoint_is_forgotten(reports: Reports) -> None:
    for start in (0, 5, 10):
        reports.add(Report(A, start, start + 5, start))
    reports.forget_before({A: 10, Place("other", 0): 3})
    assert reports.of(A, 5, 10) is None
    assert reports.of(A, 10, 15) == Report(A, 10, 15, 10)
