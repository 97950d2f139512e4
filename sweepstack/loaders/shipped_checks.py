"""Judges files for `load: command` without code of the user's own: `sweepctl-check NAME FILE`.

It runs with the limits of a check, in a copy of the job's work dir, and needs no more than `base` and the standard
library. Its answer is the last line of its output, as `command` reads it; without one it could not tell. The checks are
those of the extension `formats`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweepstack.core.extensions import not_here, part_of
from sweepstack.loaders.base import NoAnswer, Unreadable


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the answer as one line of JSON. Returns 0 with one, 2 where it could not tell and says why on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    formats = part_of("formats", "shipped_checks")
    if formats is None:
        print(f"sweepctl-check belongs to {not_here('formats')}", file=sys.stderr)
        return 2
    checks = formats.CHECKS
    if len(given) != 2 or given[0] not in checks:
        print(f"usage: sweepctl-check {'|'.join(checks)} FILE", file=sys.stderr)
        return 2
    try:
        note = checks[given[0]](Path(given[1]))
    except Unreadable as refused:
        answer: dict[str, Any] = {"ok": False, "reason": str(refused)}
    except (NoAnswer, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    else:
        answer = {"ok": True, "note": note}
    print(json.dumps(answer))
    return 0
