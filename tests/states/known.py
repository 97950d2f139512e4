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
COPY_FIRST = (
    "each loss alone leads out; `cp` puts the newest copy of the state back, `finish` alone finds the other loss, and "
    "to give up takes two more: give-up at once instead, then destroy"
)
SECOND_LINE = (
    "each loss alone leads out; the second line of `status` does here, too: give-up and destroy. Who tries "
    "its first one, a destroy that a box refuses which does not say what it holds, is one command too far"
)
PULL_FIRST = (
    "each loss alone leads out; the mend of the one takes a command, and a box without its records is only given up: "
    "what is sealed there is pulled before that"
)
ADOPTED_FIRST = (
    "each loss alone leads out; the name of the computer, the new backend and the up that adopts the boxes take a "
    "command each, and then they can end"
)

KNOWN: dict[tuple[str, str], str] = {
    ("*", "this computer's data: on a read-only disk"): ON_THAT_DISK,
    ("cut", "state: a folder"): ONE_TOO_MANY,
    ("cut", "stack file: a folder"): ONE_TOO_MANY,
    **{
        ("finished", f"{other} and entries of the state: of a newer version"): TWO_AT_ONCE
        for other in (
            "sealed artifact: torn",
            "sealed manifest: torn",
            "stack file: torn",
            "registry: torn",
            "volumes: gone",
            "this computer: renamed",
        )
    },
    ("finished", "sealed artifact: torn and state: torn"): COPY_FIRST,
    ("finished", "sealed manifest: torn and state: torn"): COPY_FIRST,
    ("finished", "profile: torn and state: torn"): COPY_FIRST,
    ("finished", "state: torn and volumes: gone"): COPY_FIRST,
    ("finished", "state: torn and pull_to: another folder"): COPY_FIRST,
    ("finished", "launch: torn and registry: torn"): PULL_FIRST,
    ("finished", "records: gone and identity in the state: gone"): PULL_FIRST,
    ("finished", "this computer: renamed and backend: lost, at another URL now"): ADOPTED_FIRST,
    ("half", "box's record: torn and state: torn"): SECOND_LINE,
    ("half", "box's record: torn and entries of the state: of a newer version"): SECOND_LINE,
}
"""(starting point, loss or pair of losses), as patterns → why no way leads out."""


NOTHING_LEFT = "boxes: deleted by hand"
"""Nothing bills from then on, so that there is no way out to be found."""


def why_not(start: str, names: tuple[str, ...]) -> str:
    """Why no way leads out of there, by a row of KNOWN; "" where one has to."""
    if NOTHING_LEFT in names:
        return ""
    for (starts, loss), why in KNOWN.items():
        if fnmatchcase(start, starts) and any(fnmatchcase(name, loss) for name in (*names, " and ".join(names))):
            return why
    return ""
