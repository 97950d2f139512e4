"""What a signal is called."""

from __future__ import annotations

import signal


def signal_name(number: int) -> str:
    """`SIGKILL`; `signal 35` for one without a name (a real-time one, or whatever an exit code of 128 and more says)."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
