"""`tests/conformance/test_platforms.py` on a real platform, as far as one can be asked."""

from __future__ import annotations

from tests.live.selection import possible

globals().update(possible("tests.conformance.test_platforms"))
