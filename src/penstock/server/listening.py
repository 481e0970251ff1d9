"""What to say when an address cannot be listened on."""

from __future__ import annotations

import errno

from penstock.config import Address
from penstock.errors import ConflictError, UsageError


def cannot_listen(address: Address, option: str, error: OSError) -> ConflictError | UsageError:
    """The error for a listener's failure; option is what chooses another address."""
    operation = f"cannot listen on {address}"
    if error.errno == errno.EADDRINUSE:
        return ConflictError(
            operation,
            "another program does",
            f"stop it, or choose another address with {option} (port 0 picks a free one)",
        )
    return UsageError(operation, str(error), f"choose another address with {option}")
