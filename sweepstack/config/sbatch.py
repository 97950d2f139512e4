"""The options of sbatch that a stack config may hand on.

All but those that sweepstack sets, or relies on, itself. sbatch takes each beginning of an option's name for that
option (`--part=x`), so a name that begins one of ours is refused, too.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from sweepstack.config.types import Names, wrong

_OPTION = re.compile(r"--([a-z][a-z0-9-]*)(=[^\x00-\x1f\x7f]+)?")
_BY_NODES = "job.nodes, with one task on each node"
_ALWAYS = "sweepstack itself: its jobs are found, ended and queued again by it"
OWNED = {
    "partition": "resources.partition",
    "account": "resources.account",
    "qos": "resources.qos",
    "constraint": "resources.constraint",
    "gres": "resources.gres and resources.gpu",
    **dict.fromkeys(("time", "time-min"), "resources.time"),
    **dict.fromkeys(("mem", "mem-per-cpu", "mem-per-gpu"), "resources.memory"),
    **dict.fromkeys(("cpus-per-task", "cpus-per-gpu"), "resources.cpu"),
    **dict.fromkeys(("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"), "resources.gpu"),
    "tres-per-task": "resources.cpu and resources.gpu",
    **dict.fromkeys(("nodes", "ntasks", "ntasks-per-node", "ntasks-per-core", "ntasks-per-socket"), _BY_NODES),
    **dict.fromkeys(("ntasks-per-gpu", "no-kill"), _BY_NODES),
    "array": "boxes.<name>.workers",
    **dict.fromkeys(("clusters", "cluster-constraint"), "boxes.<name>.host: name a login node of that cluster"),
    "signal": "job.grace",
    **dict.fromkeys(("export", "export-file", "get-user-env"), "job.env, which cells get, and they get no other"),
    **dict.fromkeys(("job-name", "chdir", "workdir", "output", "error", "input", "open-mode"), _ALWAYS),
    **dict.fromkeys(("requeue", "no-requeue", "uid", "gid", "wrap", "script"), _ALWAYS),
    **dict.fromkeys(("parsable", "test-only", "wait", "quiet", "verbose", "help", "usage", "version"), _ALWAYS),
}
"""Option of sbatch → what sets it here."""


def _one(text: str) -> str:
    found = _OPTION.fullmatch(text)
    if found is None:
        raise wrong(f"options of sbatch, each in one text and by its long name: --exclude=n3, not {text}")
    owned = next((name for name in sorted(OWNED, key=len) if name.startswith(found[1])), None)
    if owned is not None:
        raise wrong(f"options that sweepstack leaves to you: --{owned} is set by {OWNED[owned]}; take {text} out")
    return text


def _options(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_one(text) for text in texts)


SbatchOptions = Annotated[Names, AfterValidator(_options)]
