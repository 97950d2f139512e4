"""The tokens of the functions that the program calls, and that its provider answers."""

from __future__ import annotations

from typing import Final

SHARES: Final = "sweepstack:index:shares"
"""Which box is to run which cell. Both sides pass one JSON text: the engine is slow with 10,000 values."""
READY: Final = "sweepstack:index:ready"
"""Answers once the plugin has imported what requests about resources need. Takes and tells nothing."""
