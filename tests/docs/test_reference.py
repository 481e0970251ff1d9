"""The generated pages of docs/reference are what the code says."""

from __future__ import annotations

import re

import pytest
from tools import reference

from penstock.broker.topic_config import SETTINGS
from penstock.kafka.apis import APIS


@pytest.mark.parametrize("name", reference.PAGES)
def test_pages_are_current(name: str) -> None:
    written = (reference.FOLDER / name).read_text()
    assert written == reference.PAGES[name](), "run `python -m tools.reference`"


def test_every_setting_has_one_row() -> None:
    rows = re.findall(r"^\| `([a-z0-9.]+)` \|", reference.topic_settings(), re.MULTILINE)
    assert sorted(rows) == sorted(SETTINGS)


def test_every_setting_says_what_it_can_be() -> None:
    """The values are taken from the words of refusals, which could change."""
    rows = [row for row in reference.topic_settings().splitlines() if row.startswith("| `")]
    assert rows
    for row in rows:
        _, _, _, _, values, meaning, _ = row.split("|")
        assert values.strip() not in ("", "any"), row
        assert meaning.strip(), row


def test_every_request_has_one_row() -> None:
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+)", reference.kafka_api(), re.MULTILINE)
    assert [(int(key), int(lowest)) for _, key, lowest in rows] == [
        (key, api.lowest) for key, api in sorted(APIS.items())
    ]
    assert [name for name, _, _ in rows][:2] == ["Produce", "Fetch"]


def test_gaps_are_what_is_not_there() -> None:
    _, gaps = reference.kafka_api().split("## Known gaps")
    missing = {int(key) for key in re.findall(r"\w \((\d+)\)", gaps)}
    assert missing
    assert not missing & set(APIS)
    # A request stands in one gap only, under one name.
    keys = [key for gap in reference.GAPS for key in gap.requests]
    assert len(keys) == len(set(keys))


def test_check_tells_a_stale_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["reference", "--check"])
    assert reference.main() == 0
    monkeypatch.setitem(reference.PAGES, "kafka-api.md", lambda: "something else\n")
    assert reference.main() == 1
    assert "kafka-api.md is not current" in capsys.readouterr().out
