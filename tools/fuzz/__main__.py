"""Runs a million malformed inputs through every decoder, or one that was kept.

    python -m tools.fuzz [--inputs N] [--seed S] [--only NAME]
    python -m tools.fuzz --replay tests/unit/seeds/NAME/HASH

Inputs follow from the seed alone. One that makes a decoder raise anything but its declared errors, use
more than a second of processor time or far too much memory is kept under tests/unit/seeds, where
`make test` finds it; the exit code is 1 and the last line says how to have it again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.fuzz.runner import KINDS, SEEDS, Finding, Fuzzer, examine, targets

_PROGRESS_SECONDS = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="in all (default 1,000,000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", metavar="NAME", help="targets that begin with NAME")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one kept input")
    options = parser.parse_args(arguments)
    if options.replay is not None:
        return _replay(options.replay)
    return _fuzz(options.inputs, options.seed, options.only)


def _replay(path: Path) -> int:
    finding = examine(KINDS[path.parent.name](), path.read_bytes())
    print(f"{path}: {finding.cause if finding else 'nothing wrong'}")
    return 1 if finding else 0


def _fuzz(inputs: int, seed: int, only: str) -> int:
    chosen = targets(only)
    if not chosen:
        print(f"no target begins with {only}; there are {', '.join(KINDS)}")
        return 2
    whole = sum(target.share for target in chosen)
    began = time.monotonic()
    done = 0
    for target in chosen:
        fuzzer = Fuzzer(target, seed)
        finding = _one(fuzzer, -(-inputs * target.share // whole))  # rounded up
        if finding is not None:
            return _report(finding)
        done += fuzzer.done
    print(f"{done:,} inputs in {time.monotonic() - began:.0f} s; nothing found")
    return 0


def _one(fuzzer: Fuzzer, count: int) -> Finding | None:
    name = fuzzer.target.name
    began = told = time.monotonic()
    while fuzzer.done < count:
        finding = fuzzer.one()
        if finding is not None:
            return finding
        now = time.monotonic()
        if now - told > _PROGRESS_SECONDS:
            told = now
            print(f"  {name:32} {fuzzer.done:9,} of {count:,}", flush=True)
    seconds = time.monotonic() - began
    print(
        f"{name:34} {fuzzer.done:9,} inputs {seconds:6.1f} s  slowest {fuzzer.slowest * 1000:.0f} ms",
        flush=True,
    )
    return None


def _report(finding: Finding) -> int:
    path = finding.keep(SEEDS)
    print(finding.trace, end="")
    print(f"{finding.target}: {finding.cause}")
    print(f"kept; have it again with: python -m tools.fuzz --replay {path}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
