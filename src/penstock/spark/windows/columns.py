"""Names of columns that rows get on their way through windows."""

from __future__ import annotations

from typing import Final

START: Final = "window_start"
END: Final = "window_end"
WATERMARK: Final = "watermark"
LATE_BY: Final = "late_by"
CHANGE: Final = "_change_type"
LATE: Final = "_late"  # in panes: this is a row that comes too late
ROW: Final = "_row"  # in panes: the row itself, if it is or may be late
PUBLISHED: Final = "_published"  # in the state: the results of this window are out
NEW: Final = "_new"  # while a batch is folded in: there is something new in this window
DUE: Final = "_due"  # in the state: when a watermark in milliseconds has something to do here
