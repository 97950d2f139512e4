"""The nodes of a worker whose cells run over several, and how programs start on them: by `srun`.

A job of several nodes runs its batch script on the first of them. `srun` starts a program on another one, inside the
same job, so Slurm ends it with the job. Python 3.8 and the standard library.
"""

from __future__ import annotations

import json
import os
from typing import Any

from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.common.nodes import ALLOCATION

from . import commands
from .cluster import pairs


def variables() -> dict[str, str]:
    """What a worker in this job is told of its nodes; empty where it has one. Raises Unreachable, KeyError,
    ValueError."""
    if int(os.environ.get("SLURM_JOB_NUM_NODES") or 1) < 2:
        return {}
    own = os.environ["SLURMD_NODENAME"]
    names = commands.ask("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]).split()
    if own not in names:
        raise Unreachable(f"this job is on {own}, and its nodes are {', '.join(names)}")
    names = [own, *(name for name in names if name != own)]
    found: dict[str, Any] = {"nodes": _addresses(names), "start": _start()}
    return {ALLOCATION: json.dumps(found)}


def _addresses(names: list[str]) -> dict[str, str]:
    """Each with the address that Slurm itself uses for it."""
    said = commands.ask("scontrol", "--oneliner", "--all", "show", "node", ",".join(names))
    known = {fields["NodeName"]: fields.get("NodeAddr", "") for fields in map(pairs, said.splitlines()) if fields}
    return {name: known.get(name) or name for name in names}


def _start() -> list[str]:
    """The command that starts a program on the node `{node}` of this job.

    Without --overlap a step would wait for the one before it. Since Slurm 22.05 srun does not take the number of CPUs
    from the job any more, so it is named."""
    config = [f"SLURM_CONF={os.environ['SLURM_CONF']}"] if os.environ.get("SLURM_CONF") else []
    cpus = os.environ.get("SLURM_CPUS_PER_TASK") or "1"
    return [
        "env",
        *config,
        commands.program("srun"),
        f"--jobid={os.environ['SLURM_JOB_ID']}",
        "--overlap",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={cpus}",
        "--mem=0",
        "--mpi=none",
        "--chdir=/",
        "--nodelist={node}",
    ]
