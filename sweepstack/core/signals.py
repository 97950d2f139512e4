"""What a signal is called."""

from __future__ import annotations

import signal


def signal_name(number: int) -> str:
    """`SIGKILL`; `signal 40` for one without a name, such as most real-time ones."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
