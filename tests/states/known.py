"""Dead ends that are known and not mended yet: each a row with its reason. One that is mended has to go: alone, a known
dead end that leads out fails its test."""

from __future__ import annotations

from fnmatch import fnmatchcase

ON_THAT_DISK = (
    "the boxes of this machine lie on that disk: nothing ends them until it can be written, and the error says so"
)
NO_STATE = "a state that does not read: no line names the copies that the engine keeps beside it"
FOLDER = "a folder stands where a file belongs: `pull` says so, and three commands are used up by then"
TAKES_ONE_MORE = "to carry on takes `up`, `wait` and `finish`: what is lost takes one more"
NO_PROGRAM = (
    "`pulumi up` can't run, and status names nothing else while cells wait; `approve --abandon`, `destroy` works"
)
NOT_SHIPPED_AGAIN = "`pulumi up` does not ship again what the box lacks; `approve --abandon`, `destroy` works"
NOTHING_STARTED = "the box is approved, so `up` starts nothing on it; status names `up` again all the same"
REFUSAL_NAMES_FINISH = "the refused `destroy` names `finish` for a box that can't be told, which takes one more"

KNOWN: dict[tuple[str, str], str] = {
    ("*", "this computer's data: on a read-only disk"): ON_THAT_DISK,
    ("*", "state: empty"): NO_STATE,
    ("*", "state: torn"): NO_STATE,
    ("*", "state: a folder"): NO_STATE,
    ("cleared", "receipt: a folder"): FOLDER,
    ("cleared", "pulled artifact: a folder"): FOLDER,
    ("cleared", "pulled log: a folder"): FOLDER,
    ("cleared", "pulled metrics: a folder"): FOLDER,
    ("cleared", "journal: *"): NOTHING_STARTED,
    ("cleared", "data folder of the box: gone"): NOTHING_STARTED,
    ("half", "box's record: [!o]*"): REFUSAL_NAMES_FINISH,
    ("cut", "birth: *"): TAKES_ONE_MORE,
    ("cut", "registry: [!o]*"): TAKES_ONE_MORE,
    ("cut", "sealed *"): TAKES_ONE_MORE,
    ("cut", "evidence: on a read-only disk"): TAKES_ONE_MORE,
    ("cut", "volumes: gone"): TAKES_ONE_MORE,
    ("cut", "stack files: on a read-only disk"): TAKES_ONE_MORE,
    ("cut", "this computer: renamed"): TAKES_ONE_MORE,
    ("cut", "backend: lost, at another URL now"): TAKES_ONE_MORE,
    ("cut", "queue: torn"): NOT_SHIPPED_AGAIN,
    ("cut", "queue: a folder"): NOT_SHIPPED_AGAIN,
    ("cut", "spec: a folder"): NOT_SHIPPED_AGAIN,
    ("cut", "runner's pid: a folder"): NOT_SHIPPED_AGAIN,
    ("cut", "shipped list: [!g]*"): NOT_SHIPPED_AGAIN,
    ("cut", "shipped code: *"): NOT_SHIPPED_AGAIN,
    ("cut", "stack file: *"): NO_PROGRAM,
    ("cut", "profile: *"): NO_PROGRAM,
    ("cut", "work dir: gone"): NO_PROGRAM,
}
"""(starting point, loss), as patterns → why no way leads out."""


def why_not(start: str, names: tuple[str, ...]) -> str:
    """Why no way leads out of there, by a row of KNOWN; "" where one has to."""
    for (starts, loss), why in KNOWN.items():
        if fnmatchcase(start, starts) and any(fnmatchcase(name, loss) for name in names):
            return why
    return ""
