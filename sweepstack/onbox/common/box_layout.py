"""The paths of files on a box, and the tags of boxes and volumes.

Paths are box-relative POSIX paths. The runner, the channel and the provider use these constants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sweepstack.onbox.common.canonical import hex_of

CELL_NAME = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}"
"""How a cell may be called, and a start of a worker: folders have these names."""
HOME = "data/sweep"
"""The runner's home, on the tier that dies with the box."""
JOURNAL = f"{HOME}/journal.jsonl"
SEALED = ("cell-sealed", "cell-found-sealed")
"""The events of a journal after which a cell's results are fixed."""
QUEUE = f"{HOME}/queue.jsonl"
QUEUE_LOCK = f"{HOME}/queue.lock"
SHARED_LOCK = f"{HOME}/lock"
"""The lock of a box that several workers share (`locks.LinkLock`); no other box has this folder."""
WORKERS = f"{HOME}/workers"
"""A folder for each start of each such worker: `worker.json`, `patrol.jsonl`, `runner.log`."""
WORKER_LOG = "runner.log"
"""In each of these folders: what that worker's runner printed."""
JOB_LOGS = f"{HOME}/jobs"
"""What each job of a box on a cluster printed: `<job>_<task>.log`."""
RUNNER_LOCK = f"{HOME}/runner.lock"
RUNNER_PID = f"{HOME}/runner.pid"
RUNNER_LOG = f"{HOME}/runner.log"
SPEC = f"{HOME}/spec.json"
KEEP_ON = f"{HOME}/keep-on"
"""A command that reads from a box touches this file: a box that is about to end its own bill then waits longer."""
LOOKED = f"{HOME}/looked"
"""A command that looks at a box touches this file: that renews the box's lease. It is there only on a box with one."""
LEASE_LOCK = f"{HOME}/lease.lock"
"""Held by the process that stops the box when its lease is over."""
ON_START = f"{HOME}/on-start"
"""A program that a rented box runs each time it is started, also by its platform. Only a box with a lease has one."""
PATROL = f"{HOME}/patrol.jsonl"
OWNER = f"{HOME}/owner.json"
"""Who rented the box, for which sweep, and until when it counts as held: `sweepstack.teardown.ownership`."""
DECISIONS = f"{HOME}/decisions.jsonl"
"""What people decided about this box while it was in no state: `sweepstack.core.local_decisions`."""
SETUP_LOGS = f"{HOME}/setup"
"""What each set-up step and smoke run printed: see `setup_log`."""
CELLS = f"{HOME}/cells"
"""Every attempt of every cell: see `attempt_dir`."""
PEERS = "peers.json"
"""The other nodes on which a box runs parts of its cells, and the command that frees them. Written before anything is
sent to one: `sweepstack.onbox.host.peers`."""
OWN_TIERS = ("scratch", "data")
"""The tiers that end with the box, each a folder of that name."""
SECRETS = f"{HOME}/secrets.json"
"""Values of `job.secrets`, mode 0600: on a tier that ends with the box, and in no other file."""
DURABLE = "mnt/durable"
"""The tier that outlives the box, as the box sees it."""


def code_dir(code: str) -> str:
    """Where the work dir of a code digest (`sha256:<hex>`) is shipped to."""
    return f"{HOME}/code/{hex_of(code)}"


def shipped_list(code: str) -> str:
    """The list of a version's files: JSON, [path, mode, SHA-256] each. Its own SHA-256 is the code digest. The runner
    compares the folder with it before each start. Written again when files were shipped again."""
    return f"{HOME}/shipped/{hex_of(code)}.files.json"


def short(code: str) -> str:
    """The first six digits of a code digest, as people read and pin it."""
    return hex_of(code)[:6]


def provenance_file(code: str) -> str:
    """What was known of a code digest (`sha256:<hex>`) when it was shipped: JSON, written once."""
    return f"{HOME}/provenance/{hex_of(code)}.json"


def attempt_dir(cell: str, attempt: int) -> str:
    """One attempt of one cell: `out/` is its write path, `log.txt` its output."""
    return f"{CELLS}/{cell}/{attempt}"


def worker_patrol(worker: str) -> str:
    """What the patrol of one start of a worker writes, on a box that several share."""
    return f"{WORKERS}/{worker}/patrol.jsonl"


def setup_log(setup: str) -> str:
    """What a set-up step (`sha256:<hex>` of its text and the code) printed."""
    return f"{SETUP_LOGS}/{hex_of(setup)[:16]}.log"


def checkpoints_dir(identity: str, cell: str) -> str:
    """A cell's checkpoints below a durable tier: a folder for each config and work. None is ever removed."""
    return f"{identity}/checkpoints/{cell}"


def sealed_dir(identity: str, cell: str) -> str:
    """The sealed copy of a cell, relative to the durable volume's root."""
    return f"{identity}/cells/{cell}"


def surviving(kills: Iterable[str], mounts: Mapping[str, str]) -> tuple[str, ...]:
    """The native ids of the volumes in `mounts` (path → volume) that outlive a box whose end kills the tiers `kills`.

    A volume on the machine itself ends with it.
    """
    dies = set(kills) >= {path.rpartition("/")[2] for path in mounts}
    return () if dies else tuple(mounts.values())


TAGS = "sweepstack-"
"""Every tag that sweepstack gives begins with this, on every platform."""


def tag_prefix(identity: str) -> str:
    """The beginning of the tags of everything that was rented for one sweep."""
    return f"{TAGS}{identity}-"


def box_tag(identity: str, box: str, generation: int) -> str:
    """The tag in the request that rents a box. It is made from the state alone, so that a box whose answer was lost can
    be found by it."""
    return f"{tag_prefix(identity)}{box}-g{generation}"


def box_of(tag: str) -> tuple[str, str, int] | None:
    """The sweep's identity, the box's name and its generation in a box's tag; None when it is no box's tag of ours."""
    identity, found, rest = tag[len(TAGS) :].partition("-")
    box, named, generation = rest.rpartition("-g")
    ours = tag.startswith(TAGS) and identity and found and box and named and generation.isdecimal()
    return (identity, box, int(generation)) if ours and volume_of(tag) is None else None


def volume_tag(identity: str, name: str) -> str:
    """The tag of a volume of the sweep."""
    return f"{tag_prefix(identity)}volume-{name}"


def volume_of(tag: str) -> tuple[str, str] | None:
    """The sweep's identity and the volume's name in a volume's tag; None when it is no volume's tag of ours."""
    identity, found, name = tag[len(TAGS) :].partition("-volume-")
    ours = tag.startswith(TAGS) and found and name and identity and "-" not in identity
    return (identity, name) if ours else None
