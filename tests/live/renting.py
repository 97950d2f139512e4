"""Renting as the suite asks for it, where a box needs minutes to start."""

from __future__ import annotations

from typing import Any

from sweepstack.onbox.host.platform import BoxRecord, Platform
from tests.conformance.suite import Renter

READY_SECONDS = 900.0
MEANT_TO_FAIL = 10.0
"""A deadline below this is what a test is about."""


class LiveRenter(Renter):
    """See `tests.conformance.suite.Renter`."""

    def __call__(self, platform: Platform | None = None, *, deadline: float = 60, **changes: Any) -> BoxRecord:
        patience = deadline if deadline < MEANT_TO_FAIL else READY_SECONDS
        return super().__call__(platform, deadline=patience, **changes)
