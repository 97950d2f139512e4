"""For all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Gives commands that tests start the default of Ctrl-C: under `nohup … &` it is ignored, and that is inherited."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
