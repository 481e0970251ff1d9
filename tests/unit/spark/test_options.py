"""The source's options: Kafka's names, and an error that says what to write."""

from __future__ import annotations

import pytest

from penstock.client.cluster import EARLIEST, LATEST, Place
from penstock.errors import UsageError
from penstock.spark.options import parse_options
from penstock.spark.positions import from_position, limited, split, to_position

LEAST = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "a"}


def test_defaults_are_those_of_sparks_own_source_but_for_the_isolation() -> None:
    stream = parse_options(LEAST, streaming=True)
    assert stream.starting.all == LATEST
    assert stream.fail_on_data_loss
    assert not stream.headers
    assert stream.committed
    assert stream.offsets_per_trigger is None
    batch = parse_options(LEAST, streaming=False)
    assert (batch.starting.all, batch.ending.all) == (EARLIEST, LATEST)


def test_names_may_be_written_in_any_case() -> None:
    given = {"KAFKA.bootstrap.servers": "h:1", "SUBSCRIBE": "a, b", "maxoffsetspertrigger": "5"}
    options = parse_options(given, streaming=True)
    assert options.topics == ("a", "b")
    assert options.offsets_per_trigger == 5


def test_offsets_by_partition() -> None:
    text = '{"a": {"0": 23, "1": -2}}'
    starting = parse_options({**LEAST, "startingOffsets": text}, streaming=True).starting
    assert starting.offsets == {Place("a", 0): 23, Place("a", 1): EARLIEST}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"subscribe": "a"}, "set kafka.bootstrap.servers"),
        ({"kafka.bootstrap.servers": "h:1"}, "set one of subscribe, subscribePattern and assign"),
        ({**LEAST, "subscribePattern": "a.*"}, "set one of subscribe, subscribePattern and assign"),
        ({**LEAST, "startingOffset": "latest"}, "did you mean startingOffsets?"),
        ({**LEAST, "startingOffsets": "middle"}, 'write earliest, latest or {"topic"'),
        ({**LEAST, "startingOffsets": '{"a": 5}'}, 'write earliest, latest or {"topic"'),
        ({**LEAST, "startingOffsets": "earliest", "startingTimestamp": "5"}, "said twice"),
        ({**LEAST, "startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({**LEAST, "maxOffsetsPerTrigger": "0"}, "a number above 0"),
        ({**LEAST, "failOnDataLoss": "maybe"}, "write true or false"),
        ({**LEAST, "kafka.isolation.level": "none"}, "write read_committed or read_uncommitted"),
        ({**LEAST, "valueFormat": "xml"}, "write raw or json"),
        ({**LEAST, "endingOffsets": "latest"}, "a stream has no end"),
        ({"kafka.bootstrap.servers": "h:1", "assign": "a"}, 'write {"topic": [0, 1]}'),
        ({**LEAST, "watermarkDelay": "1 minute"}, "set eventTimeColumn"),
        ({**LEAST, "idleTimeout": "1 minute"}, "set eventTimeColumn"),
        ({**LEAST, "eventTimeColumn": "at", "watermarkDelay": "soon"}, 'such as "10 seconds"'),
        ({**LEAST, "eventTimeColumn": "at", "idleTimeout": "0 seconds"}, "a duration above 0"),
    ],
)
def test_bad_input_says_what_to_write(given: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_options(given, streaming=True)
    assert says in str(error.value)


def test_a_position_survives_the_checkpoint() -> None:
    offsets = {Place("a", 0): 5, Place("a", 10): 7, Place("b", 1): 0}
    assert from_position(to_position(offsets)) == offsets
    assert to_position(offsets) == {"a": {"0": 5, "10": 7}, "b": {"1": 0}}


def test_a_limit_is_shared_by_what_there_is_and_starves_nobody() -> None:
    start = {Place("a", 0): 0, Place("a", 1): 10, Place("a", 2): 0}
    latest = {Place("a", 0): 1000, Place("a", 1): 12, Place("a", 2): 0}
    assert limited(start, latest, 5000) == latest
    end = limited(start, latest, 100)
    assert end == {Place("a", 0): 99, Place("a", 1): 11, Place("a", 2): 0}


def test_a_range_is_cut_without_gaps() -> None:
    assert split(10, 20, 3) == [(10, 13), (13, 16), (16, 20)]
    assert split(0, 2, 5) == [(0, 1), (1, 2)]
