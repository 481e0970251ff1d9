"""Every input that ever broke a decoder, once more; and a short run of the fuzzer itself."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from tools.fuzz.__main__ import main
from tools.fuzz.runner import KINDS, SEEDS, Fuzzer, examine, targets
from tools.fuzz.target import Step, Target

from penstock.errors import PenstockError

INPUTS = 2_000


SHARES = sum(kind.share for kind in KINDS.values())
KEPT = [f"{path.parent.name}/{path.name}" for path in sorted(SEEDS.glob("*/*"))]


@pytest.mark.parametrize("seed", KEPT)
def test_a_kept_seed_does_no_harm(seed: str) -> None:
    name, _, _ = seed.partition("/")
    finding = examine(KINDS[name](), (SEEDS / seed).read_bytes())
    assert finding is None, f"{finding.cause}\n{finding.trace}"


@pytest.mark.parametrize("name", KINDS)
def test_a_short_run(name: str) -> None:
    fuzzer = Fuzzer(KINDS[name](), seed=2026)
    while fuzzer.done < INPUTS * KINDS[name].share / SHARES:
        finding = fuzzer.one()
        assert finding is None, f"{finding.cause}\n{finding.trace}"


class Broken(Target):
    """Fails on what contains an x, in the way its first byte says."""

    name = "broken"
    share = 1

    def _generate(self, random: Random) -> bytes:
        return random.choice((b"abc", b"axc"))

    def _run(self, data: bytes, step: Step) -> None:
        if data[0:1] == b"d":
            raise PenstockError("decode", "declared")
        if data[0:1] == b"s":
            while True:
                pass
        if b"x" in data:
            raise KeyError("undeclared")

    def _smaller(self, data: bytes) -> list[bytes]:
        return [data[:at] + data[at + 1 :] for at in range(len(data))]


def test_undeclared_errors_are_found_and_made_small(tmp_path: Path) -> None:
    fuzzer = Fuzzer(Broken(), seed=1)
    found = next(finding for _ in range(100) if (finding := fuzzer.one()) is not None)
    assert (found.target, found.data, found.cause) == ("broken", b"x", "KeyError: 'undeclared'")
    path = found.keep(tmp_path)
    assert path.parent == tmp_path / "broken"
    assert path.read_bytes() == b"x"


def test_declared_errors_are_answers() -> None:
    assert examine(Broken(), b"d") is None


def test_an_input_that_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.fuzz.runner._SECONDS_MAX", 0.05)
    found = examine(Broken(), b"s")
    assert found is not None
    assert found.cause.startswith("TooSlow")


def test_inputs_follow_from_the_seed() -> None:
    for target in targets():
        first, again, other = (
            [target.generate(random) for _ in range(3)] for random in map(Random, (5, 5, 6))
        )
        assert first == again != other, target.name


def test_a_run_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--inputs", "50", "--only", "varint"]) == 0
    assert "50 inputs" in capsys.readouterr().out
    assert main(["--only", "nothing"]) == 2
