"""Dead ends that are known and not mended yet: each a row with its reason. One that is mended has to go: alone, a known
dead end that leads out fails its test."""

from __future__ import annotations

from fnmatch import fnmatchcase

ON_THAT_DISK = (
    "the boxes of this machine lie on that disk: nothing ends them until it can be written, and the error says so"
)
ONE_TOO_MANY = (
    "`mv` takes the folder out of the way, `cp` puts the newest copy there; to give up what trains takes two more"
)
TWO_AT_ONCE = (
    "each loss alone leads out; `status` looks at no field that it has no use for, so only the destroy, which comes "
    "third, says that a newer version wrote the state"
)

KNOWN: dict[tuple[str, str], str] = {
    ("*", "this computer's data: on a read-only disk"): ON_THAT_DISK,
    ("cut", "state: a folder"): ONE_TOO_MANY,
    ("finished", "sealed artifact: torn and entries of the state: of a newer version"): TWO_AT_ONCE,
}
"""(starting point, loss or pair of losses), as patterns → why no way leads out."""


def why_not(start: str, names: tuple[str, ...]) -> str:
    """Why no way leads out of there, by a row of KNOWN; "" where one has to."""
    for (starts, loss), why in KNOWN.items():
        if fnmatchcase(start, starts) and any(fnmatchcase(name, loss) for name in (*names, " and ".join(names))):
            return why
    return ""
