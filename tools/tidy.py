"""The style rules no linter knows: lengths, banned calls with their replacements, leftovers.

    python tools/tidy.py

Prints one line per finding and exits 1 if there is one.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 600
FILE_BYTES_MAX = 500_000

BANNED = {
    r"\bprint\(": (
        "src/penstock",
        "use cli.output or logging",
        ("src/penstock/cli/output.py", "src/penstock/cli/produce.py"),
    ),
    r"\btime\.time\(": ("src/penstock", "take a Clock", ()),
    r"\bos\.(open|fsync|fdatasync|pwrite|rename)\(": (
        "src/penstock",
        "go through penstock.files",
        ("src/penstock/files.py", "src/penstock/cli/output.py"),
    ),
    r"\bpickle\b": ("src/penstock", "never load code from data", ()),
    # Spelled in two halves so that this file passes its own rule.
    "FIX" + "ME|TO" + "DO": ("", "do it, or open an issue", ()),
}


def tracked_files() -> list[Path]:
    """Files of the project, as git knows them, new ones included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [Path(line) for line in listed.splitlines() if Path(line).is_file()]


def check_python(path: Path, text: str) -> Iterator[str]:
    """Lengths of the module and of its functions."""
    lines = text.count("\n")
    if lines > MODULE_LINES_MAX:
        yield f"{path}: {lines} lines; split it (at most {MODULE_LINES_MAX})"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"{path}:{node.lineno}: {node.name} has {length} lines"


def check_banned(path: Path, text: str) -> Iterator[str]:
    """Calls that have a better replacement here."""
    for pattern, (folder, instead, allowed) in BANNED.items():
        if not str(path).startswith(folder) or str(path) in allowed:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(pattern, line):
                yield f"{path}:{number}: {line.strip()[:60]!r}: {instead}"


def check_markdown(path: Path, text: str) -> Iterator[str]:
    """One title per page."""
    fenced = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    titles = re.findall(r"^# ", fenced, flags=re.MULTILINE)
    if len(titles) != 1:
        yield f"{path}: {len(titles)} first-level headings; a page has one"


def main() -> int:
    """Check everything; the exit code."""
    findings: list[str] = []
    for path in tracked_files():
        if path.stat().st_size > FILE_BYTES_MAX:
            findings.append(f"{path}: larger than {FILE_BYTES_MAX} bytes")
        if path.suffix == ".py":
            text = path.read_text()
            findings += check_python(path, text)
            findings += check_banned(path, text)
        elif path.suffix == ".md":
            findings += check_markdown(path, path.read_text())
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
