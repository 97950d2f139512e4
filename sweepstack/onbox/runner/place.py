"""Checks that the durable tier is the place of the host that the box was made with."""

from __future__ import annotations

import json
from pathlib import Path

from sweepstack.onbox.runner.records import Fatal

FACTS, PLACE, SHOWN = "box.json", "place.json", "shown"
MEND = "mount it in the platform's console, or start the host again, then run `pulumi up`"


def must_be_the_place(box: Path, mount: str) -> None:
    """Raises Fatal when the place that the box was made with is not there now. After a restart of the host its file
    system may not be mounted: cells sealed into the empty mount point would be lost with the host."""
    try:
        shown = json.loads((box / FACTS).read_bytes()).get(SHOWN) or {}
    except FileNotFoundError:
        return  # no box of a host: the platform mounts what it has
    except (OSError, ValueError, AttributeError) as error:
        raise Fatal(2, f"{box / FACTS} can't be read, so the durable tier is not known: {error}") from error
    if mount not in shown:
        return
    folder, expected = shown[mount]
    try:
        found = json.loads((box / mount / PLACE).read_bytes())["id"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Fatal(2, f"the durable tier is not mounted at {folder}: {MEND} ({error})") from error
    if found != expected:
        raise Fatal(2, f"the durable tier at {folder} is {found}, and this box was made with {expected}: {MEND}")
