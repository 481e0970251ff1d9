"""What a person sees of the shop: a page that is kept current, or lines where there is no terminal."""

from __future__ import annotations

import time
from datetime import datetime
from types import TracebackType

from examples.shop.tables import Numbers, pairs
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

_LINE_SECONDS = 3.0
_BAR = 40


class Screen:
    """See the module."""

    def __init__(self, opening: datetime) -> None:
        self._opening = opening
        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False)
        self._said: list[str] = []
        self._lined = 0.0

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._live.__exit__(kind, error, trace)

    def say(self, text: str) -> None:
        """Something has happened."""
        self._said.append(text)
        if not self._console.is_terminal:
            print(f"  >>> {text}", flush=True)

    def show(self, sent: int, numbers: Numbers) -> None:
        """How things stand."""
        if self._console.is_terminal:
            self._live.update(self._page(sent, numbers), refresh=True)
        elif time.monotonic() - self._lined > _LINE_SECONDS:
            self._lined = time.monotonic()
            latest = f"  {_clock(numbers.revenue[-1][0])}" if numbers.revenue else ""
            print(
                f"  {sent:>8,} sent  {numbers.counted:>8,} counted  {numbers.late:>5,} late"
                f"  {numbers.visits:>6,} visits{latest}",
                flush=True,
            )

    def _page(self, sent: int, numbers: Numbers) -> Group:
        state = Text.assemble(
            ("sent ", "dim"),
            f"{sent:,}   ",
            ("counted ", "dim"),
            f"{numbers.counted:,}   ",
            ("late ", "dim"),
            f"{numbers.late:,}   ",
            ("visits ", "dim"),
            f"{numbers.visits:,}",
        )
        said = [Text(f">>> {text}", style="bold red") for text in self._said]
        hint = Text("press Enter to kill the pipeline", style="dim")
        return Group(state, _revenue(numbers), _wanted(numbers), *said, hint)


def _revenue(numbers: Numbers) -> Table:
    table = Table(title="revenue by minute", title_justify="left", box=None)
    for name in ("minute", "euro", ""):
        table.add_column(name, justify="right" if name == "euro" else "left")
    most = max((cents for _, cents in numbers.revenue), default=1) or 1
    for start, cents in numbers.revenue:
        table.add_row(_clock(start), f"{cents / 100:,.2f}", "█" * round(_BAR * cents / most))
    return table


def _wanted(numbers: Numbers) -> Table:
    table = Table(title="most wanted", title_justify="left", box=None, show_header=False)
    for start, top in numbers.wanted:
        table.add_row(_clock(start), ", ".join(f"{name} {count}" for name, count in pairs(top)))
    return table


def _clock(moment: str) -> str:
    return datetime.fromisoformat(moment).strftime("%H:%M")
