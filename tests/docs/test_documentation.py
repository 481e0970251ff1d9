"""The documentation is true where a machine can tell: links, examples, names of targets."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
GUIDE = ROOT / "docs/guide"
RUN = [
    ROOT / "README.md",
    *(
        GUIDE / f"{page}.md"
        for page in (
            "testing",
            "once",
            "both",
            "spark",
            "time",
            "state",
            "windows",
            "views",
            "exactly-once",
            "cluster",
        )
    ),
]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


# -- links


def prose(text: str) -> str:
    """A page without its code, in which brackets mean something else."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def headings(page: Path) -> set[str]:
    """The anchors of a page, made from its headings as GitHub does."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    broken: list[str] = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue  # elsewhere; tests do not need a network
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        missing_anchor = anchor and target.is_file() and anchor not in headings(target)
        if not target.is_relative_to(ROOT) or not target.exists() or missing_anchor:
            broken.append(link)
    assert not broken


def test_every_page_of_the_documentation_is_linked_from_somewhere() -> None:
    linked = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in PAGES
        for link in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text()))
    }
    pages = {page for page in PAGES if page.parent != ROOT}
    lonely = {page for page in pages - linked if page.parent not in linked}
    assert not {name(page) for page in lonely}


# -- examples


class Example(NamedTuple):
    """A block of Python on a page."""

    page: Path
    line: int
    code: str

    def __str__(self) -> str:
        return f"{name(self.page)}:{self.line}"


def examples() -> Iterator[Example]:
    for page in RUN:
        text = page.read_text()
        for block in re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            yield Example(page, text.count("\n", 0, block.start()) + 1, block[1])


def test_there_are_examples() -> None:
    assert {example.page for example in examples()} == set(RUN)


class Runner:
    """A process that runs examples."""

    def __init__(self, folder: Path) -> None:
        self._output = folder / "output"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.docs.example_runner"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                cwd=ROOT,
            )

    def run(self, file: Path) -> tuple[bool, str]:
        """Whether it went well, and what it printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        before = self._output.stat().st_size
        self._process.stdin.write(f"{file}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        return answer == "ok\n", self._output.read_bytes()[before:].decode(errors="replace")

    def end(self) -> None:
        """Nothing is run any more."""
        try:
            self._process.communicate(timeout=60)
        finally:
            self._process.kill()


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    started = Runner(tmp_path_factory.mktemp("examples"))
    yield started
    started.end()


@pytest.mark.timeout(300)  # Spark starts a JVM
@pytest.mark.parametrize("example", list(examples()), ids=str)
def test_examples_run(runner: Runner, example: Example, tmp_path: Path) -> None:
    """As a reader would: in a file of its own, by pytest if it is a test."""
    file = tmp_path / "test_example.py"
    file.write_text(example.code)
    went_well, output = runner.run(file)
    assert went_well, output


def test_an_example_that_fails_is_told_from_one_that_does_not(
    runner: Runner, tmp_path: Path
) -> None:
    file = tmp_path / "test_example.py"
    for code, says in (
        ("import sys; print('why'); sys.exit(3)\n", "why"),
        ("def test_it():\n    assert 1 == 2\n", "assert 1 == 2"),
        ("assert 1 == 2, 'not so'\n", "not so"),
    ):
        file.write_text(code)
        went_well, output = runner.run(file)
        assert not went_well
        assert says in output
    file.write_text("import os\nassert os.getcwd() == os.path.dirname(os.path.abspath(__file__))\n")
    assert runner.run(file) == (True, "")


# -- targets


def targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text()
    return set(re.findall(r"^([a-z][a-z-]*):", makefile, flags=re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_targets_exist(page: Path) -> None:
    text = page.read_text()
    spans = re.findall(r"`(?:[A-Z_]+=\S+ )*make ([a-z][a-z -]*)`", text)
    blocks = re.findall(r"```.*?```", text, flags=re.DOTALL)
    lines = [
        line
        for block in blocks
        for line in re.findall(r"^(?:[A-Z_]+=\S+ )*make ([a-z][a-z -]*)", block, re.MULTILINE)
    ]
    named = {target for run in (*spans, *lines) for target in run.split()}
    assert named <= targets()


def test_the_targets_that_are_needed_are_named() -> None:
    """So that the expressions above cannot quietly find nothing."""
    text = (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    for target in ("demo", "test", "lint", "fault-log", "compat", "bench-log"):
        assert re.search(rf"make {target}\b", text)
        assert target in targets()


def test_every_target_explains_itself() -> None:
    makefile = (ROOT / "Makefile").read_text()
    explained = set(re.findall(r"^([a-z][a-z-]*):.*## \S", makefile, flags=re.MULTILINE))
    assert explained == targets()
