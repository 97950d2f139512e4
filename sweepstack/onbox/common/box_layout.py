"""Where things lie on a box: box-relative POSIX paths that the runner, the channel and the provider agree on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sweepstack.onbox.common.canonical import hex_of

HOME = "data/sweep"
"""The runner's home, on the tier that dies with the box."""
JOURNAL = f"{HOME}/journal.jsonl"
QUEUE = f"{HOME}/queue.jsonl"
QUEUE_LOCK = f"{HOME}/queue.lock"
RUNNER_LOCK = f"{HOME}/runner.lock"
RUNNER_PID = f"{HOME}/runner.pid"
RUNNER_LOG = f"{HOME}/runner.log"
SPEC = f"{HOME}/spec.json"
KEEP_ON = f"{HOME}/keep-on"
"""Touched by whoever reads from a box that is about to end its own bill: it waits a while longer."""
PATROL = f"{HOME}/patrol.jsonl"
OWNER = f"{HOME}/owner.json"
"""Who rented the box, for which sweep, and until when it counts as held: `sweepstack.teardown.ownership`."""
DECISIONS = f"{HOME}/decisions.jsonl"
"""What people decided about this box where no state had it: `sweepstack.core.local_decisions`."""
SETUP_LOGS = f"{HOME}/setup"
"""What each set-up step and smoke run printed: see `setup_log`."""
CELLS = f"{HOME}/cells"
"""Every attempt of every cell: see `attempt_dir`."""
OWN_TIERS = ("scratch", "data")
"""The tiers that no box keeps beyond its end, each a folder of that name."""
SECRETS = f"{HOME}/secrets.json"
"""Values of `job.secrets`, mode 0600: on a tier that dies with the box, and in no other file."""
DURABLE = "mnt/durable"
"""The tier that outlives the box, as the box sees it."""


def code_dir(code: str) -> str:
    """Where the work dir of a code digest (`sha256:<hex>`) is shipped to."""
    return f"{HOME}/code/{hex_of(code)}"


def shipped_list(code: str) -> str:
    """The files of a code digest as JSON ([path, mode, SHA-256] each), whose own SHA-256 is the digest: what the runner
    holds the folder to before each start. Written again when files were shipped again."""
    return f"{HOME}/shipped/{hex_of(code)}.files.json"


def short(code: str) -> str:
    """A code digest as people read and pin it."""
    return hex_of(code)[:6]


def provenance_file(code: str) -> str:
    """What was known of a code digest (`sha256:<hex>`) when it was shipped: JSON, written once."""
    return f"{HOME}/provenance/{hex_of(code)}.json"


def attempt_dir(cell: str, attempt: int) -> str:
    """One attempt of one cell: `out/` is its write path, `log.txt` its output."""
    return f"{CELLS}/{cell}/{attempt}"


def setup_log(setup: str) -> str:
    """What a set-up step (`sha256:<hex>` of its text and the code) printed."""
    return f"{SETUP_LOGS}/{hex_of(setup)[:16]}.log"


def sealed_dir(identity: str, cell: str) -> str:
    """The sealed copy of a cell, relative to the durable volume's root."""
    return f"{identity}/cells/{cell}"


def surviving(kills: Iterable[str], mounts: Mapping[str, str]) -> tuple[str, ...]:
    """The volumes (native ids) of `mounts` (path → volume) that outlive a box whose end kills these tiers.

    One that lies on the machine itself dies with it.
    """
    dies = set(kills) >= {path.rpartition("/")[2] for path in mounts}
    return () if dies else tuple(mounts.values())


TAGS = "sweepstack-"
"""What the tag of everything of ours begins with, on every platform."""


def tag_prefix(identity: str) -> str:
    """What the tag of everything rented for a sweep begins with."""
    return f"{TAGS}{identity}-"


def box_tag(identity: str, box: str, generation: int) -> str:
    """The tag sent with the request that rents a box; made from state alone, so a lost answer can be looked up."""
    return f"{tag_prefix(identity)}{box}-g{generation}"


def box_of(tag: str) -> tuple[str, str, int] | None:
    """The identity, the box's name and its generation in a box's tag; None for what is no tag of a box of ours."""
    identity, found, rest = tag[len(TAGS) :].partition("-")
    box, named, generation = rest.rpartition("-g")
    ours = tag.startswith(TAGS) and identity and found and box and named and generation.isdecimal()
    return (identity, box, int(generation)) if ours and volume_of(tag) is None else None


def volume_tag(identity: str, name: str) -> str:
    """The tag of a volume of the sweep."""
    return f"{tag_prefix(identity)}volume-{name}"


def volume_of(tag: str) -> tuple[str, str] | None:
    """The identity and the name in a volume's tag; None for what is no tag of a volume of ours."""
    identity, found, name = tag[len(TAGS) :].partition("-volume-")
    ours = tag.startswith(TAGS) and found and name and identity and "-" not in identity
    return (identity, name) if ours else None
