"""What a run tells its pipeline survives the environment, and takes the place of the file's range."""

from __future__ import annotations

import pytest

from penstock.cli.run import parse_bound
from penstock.errors import UsageError
from penstock.pipelines.terms import Bound, Terms, current_terms


def test_without_a_run_a_file_runs_on_this_machine_as_a_stream() -> None:
    assert current_terms({}) == Terms("127.0.0.1:9092", "local[*]", None, None, None)
    assert not current_terms({}).bounded


def test_terms_come_through_the_environment_as_they_are() -> None:
    offsets = Bound.at_offsets('{"a": {"0": 5}}')
    terms = Terms("kafka:1", "spark://x:7077", "/state", offsets, Bound.at_time(12))
    assert current_terms(terms.environment()) == terms
    assert current_terms(terms.environment()).bounded


def test_the_range_of_a_run_takes_the_place_of_the_files_own() -> None:
    terms = Terms(starting=Bound.at_offsets("earliest"), ending=Bound.at_time(99))
    given = {"startingTimestamp": 5, "endingOffsets": "latest", "maxOffsetsPerTrigger": 10}
    assert terms.source_options("a", given) == {
        "startingOffsets": "earliest",
        "endingTimestamp": "99",
        "maxOffsetsPerTrigger": 10,
    }


def test_a_source_gets_the_offsets_of_its_own_topics() -> None:
    terms = Terms(ending=Bound.at_offsets('{"a": {"0": 5}, "b": {"1": 7}}'))
    assert terms.source_options("b, c", {}) == {"endingOffsets": '{"b": {"1": 7}}'}
    assert terms.source_options("c", {"endingOffsets": "latest"}) == {"endingOffsets": "latest"}


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("start", Bound.at_offsets("earliest")),
        ("now", Bound.at_offsets("latest")),
        ("2026-01-02T03:04:05Z", Bound.at_time(1_767_323_045_000)),
        ('{"a": {"0": 5}}', Bound.at_offsets('{"a": {"0": 5}}')),
    ],
)
def test_places(text: str, bound: Bound) -> None:
    assert parse_bound("--until", text) == bound


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("42", "a number alone names no partition"),
        ("-3", "a number alone names no partition"),
        ("{oops", "it is no JSON"),
        ("whenever", "it is no place in topics"),
    ],
)
def test_what_is_no_place_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_bound("--until", text)
