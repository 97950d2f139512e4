"""Dead ends that are known and not mended yet: each a row with its reason. One that is mended has to go: alone, a known
dead end that leads out fails its test."""

from __future__ import annotations

from fnmatch import fnmatchcase

ON_THAT_DISK = (
    "the boxes of this machine lie on that disk: nothing ends them until it can be written, and the error says so"
)
NO_FILE = (
    "the engine never makes a folder where its state file belongs, and says that the stack is not there; "
    "`mv` it away, then `pulumi stack init`, `pulumi up` (adopts the boxes) and `sweepctl finish`"
)
ANOTHER_BACKEND = (
    "to take the sweep over and to train what is left takes `adopt`, `up`, `wait` and `finish`; "
    '`sweepctl audit --end PLATFORM:ID --abandon --reason "…"` ends the box in one command'
)
TWO_AT_ONCE = (
    "each loss alone leads out, and both take a command more than three; "
    '`sweepctl approve --abandon B --reason "…"` and `pulumi destroy` end it, once one loss is put right'
)

KNOWN: dict[tuple[str, str], str] = {
    ("*", "this computer's data: on a read-only disk"): ON_THAT_DISK,
    ("*", "state: a folder"): NO_FILE,
    ("cut", "backend: lost, at another URL now"): ANOTHER_BACKEND,
    ("finished", "work dir: gone and queue in the state: gone"): TWO_AT_ONCE,
    ("finished", "sealed artifact: torn and entries of the state: of a newer version"): TWO_AT_ONCE,
    ("cleared", "this computer: renamed and backend: lost, made anew"): TWO_AT_ONCE,
}
"""(starting point, loss or pair of losses), as patterns → why no way leads out."""


def why_not(start: str, names: tuple[str, ...]) -> str:
    """Why no way leads out of there, by a row of KNOWN; "" where one has to."""
    for (starts, loss), why in KNOWN.items():
        if fnmatchcase(start, starts) and any(fnmatchcase(name, loss) for name in (*names, " and ".join(names))):
            return why
    return ""
