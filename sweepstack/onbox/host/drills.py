"""Drills: failures of the local platform, for practice and tests, set by environment variables.

`SWEEPSTACK_DRILL_BOOT_SECONDS=<n>` makes a box take n seconds to get ready, new or started again;
`SWEEPSTACK_DRILL_CREATE=lose-answer` makes the box and loses the answer, `=fail-after-create` makes it and then fails.
"""

from __future__ import annotations

import os

from sweepstack.onbox.common.errors import PlatformError

BOOT_DRILL = "SWEEPSTACK_DRILL_BOOT_SECONDS"
CREATE_DRILL = "SWEEPSTACK_DRILL_CREATE"
_CREATE_DRILLS = ("", "fail-after-create", "lose-answer")


def drills() -> tuple[float, str]:
    """(seconds until a box is ready, the drill for creates or ""). Raises PlatformError for unknown values."""
    boot, drill = os.environ.get(BOOT_DRILL, ""), os.environ.get(CREATE_DRILL, "")
    if drill not in _CREATE_DRILLS:
        raise PlatformError(f"{CREATE_DRILL}={drill!r} is no drill; there are: {', '.join(_CREATE_DRILLS[1:])}")
    try:
        return float(boot or 0), drill
    except ValueError as error:
        raise PlatformError(f"{BOOT_DRILL}={boot!r} is not a number of seconds") from error
