"""What a worker asks of the cluster: refused before anything is submitted, and spelled for sbatch.

`WorkerRequest` is made of the sweep's `job.resources`. The cluster itself has the last word: `dry_run` has it judge the
very options that a worker is submitted with.
"""

from __future__ import annotations

import difflib
import math
import re
from typing import Any, Iterable, Iterator, Mapping

from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import RequestRefused
from sweepstack.onbox.host.offers import same_gpu

from . import commands, states
from .cluster import Cluster, Nodes, Partition, gres

EARLY_SECONDS = 60.0
"""Slurm may send the warning before the end so much earlier than asked."""
SEAL_SECONDS = 30.0
"""For the runner to write down how its cells ended."""
GRACE_SECONDS = 20.0
"""For a cell to save, where the job names no `grace`."""
_FEATURES = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class WorkerRequest:
    """What one worker asks for, on each of its `nodes`. `wall`: seconds, None for the partition's own. `grace`: seconds
    that a cell gets to save. `gres`: further generic resources, as sbatch takes them; `sbatch`: its further options."""

    workers: int = 1
    nodes: int = 1
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    gres: str = ""
    wall: float | None = None
    gpus: int = 0
    gpu_names: tuple[str, ...] = ()
    cpus: int = 1
    memory_mb: int | None = None
    grace: float = GRACE_SECONDS
    sbatch: tuple[str, ...] = ()

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> WorkerRequest:
        """Of a queue's `scheduler` input. Raises RequestRefused for what is none."""
        try:
            memory = facts.get("memory_bytes")
            words = {key: str(facts.get(key) or "") for key in ("partition", "account", "qos", "constraint", "gres")}
            return cls(
                workers=int(facts.get("workers") or 1),
                nodes=int(facts.get("nodes") or 1),
                **words,
                wall=None if not facts.get("wall_seconds") else float(facts["wall_seconds"]),
                gpus=int(facts.get("gpus") or 0),
                gpu_names=tuple(str(name) for name in facts.get("gpu_names") or ()),
                cpus=max(1, math.ceil(float(facts.get("cpu") or 1))),
                memory_mb=None if not memory else max(1, math.ceil(int(memory) / 2**20)),
                grace=GRACE_SECONDS if facts.get("grace_seconds") is None else float(facts["grace_seconds"]),
                sbatch=tuple(str(option) for option in facts.get("sbatch") or ()),
            )
        except (TypeError, ValueError) as error:
            raise RequestRefused(f"what the workers ask for can't be read: {error}") from error

    @property
    def lead(self) -> int:
        """Seconds before the wall at which Slurm is to warn the worker."""
        return math.ceil(self.grace + EARLY_SECONDS + SEAL_SECONDS)


def cluster_refusals(asked: WorkerRequest, cluster: Cluster) -> list[str]:
    """Why the cluster can't run such workers, each with the key and the fix; empty when nothing is known against it."""
    partition = cluster.partition(asked.partition)
    if partition is None:
        names = [one.name for one in cluster.partitions]
        if not asked.partition:
            return [f"resources.partition is missing: {cluster.name} has no default; it has {', '.join(names)}"]
        near = _near(asked.partition, names)
        return [f"resources.partition: {cluster.name} has no {asked.partition}{near}; it has {', '.join(names)}"]
    found = list(_partition(asked, partition))
    fitting = list(partition.nodes)
    for what, fits in _needs(asked, partition):
        left = [nodes for nodes in fitting if fits(nodes)]
        if not left:
            return [*found, what]
        fitting = left
    if sum(nodes.count for nodes in fitting) < asked.nodes:
        most = sum(nodes.count for nodes in fitting)
        found.append(f"job.nodes is {asked.nodes}, and {partition.name} has {most} nodes with the rest: ask for less")
    return found


def _partition(asked: WorkerRequest, partition: Partition) -> Iterator[str]:
    """What of the partition itself rules such workers out: its state, who may use it, how long a job may run."""
    if not partition.up:
        yield f"resources.partition: {partition.name} is not up: nothing starts there; take another"
    if partition.accounts and asked.account and asked.account not in partition.accounts:
        near = _near(asked.account, partition.accounts)
        yield f"resources.account: {partition.name} is for {', '.join(partition.accounts)}{near}"
    if partition.qos and asked.qos and asked.qos not in partition.qos:
        yield f"resources.qos: {partition.name} takes {', '.join(partition.qos)}{_near(asked.qos, partition.qos)}"
    if asked.wall is not None and partition.wall is not None and asked.wall > partition.wall:
        yield (
            f"resources.time: {wall_text(asked.wall)} is more than {partition.name} gives, {wall_text(partition.wall)}"
            ": write that or less; a worker is requeued when its time is over, and cells go on from their checkpoints"
        )
    wall = asked.wall if asked.wall is not None else partition.limit
    if wall is not None and wall <= 2 * asked.lead:
        yield (
            f"resources.time: {wall_text(wall)} is too short: a worker is warned {asked.lead} s before its end "
            "(job.grace, and 90 s in which Slurm may be early and cells are sealed); write "
            f"{math.ceil(asked.lead * 4 / 60)}m or more"
        )


def _needs(asked: WorkerRequest, partition: Partition) -> Iterator[tuple[str, Any]]:
    """What one node must have, one after the other: (what is said when none has it, whether these nodes have it)."""
    all_nodes, name = partition.nodes, partition.name
    if asked.constraint and (words := _FEATURES.fullmatch(asked.constraint)):
        known = sorted(set().union(*(nodes.features for nodes in all_nodes)) if all_nodes else set())
        there = f"; it has {', '.join(known)}" if known else ", which has no features"
        yield (
            f"resources.constraint: no node of {name} has the feature {words[0]}{_near(words[0], known)}{there}",
            lambda nodes: asked.constraint in nodes.features,
        )
    if asked.gpus:
        types = sorted({kind for nodes in all_nodes for (what, kind) in nodes.gres if what == "gpu" and kind})
        most = max((nodes.has("gpu") for nodes in all_nodes), default=0)
        wanted = f"{asked.gpus}× {' or '.join(asked.gpu_names) or 'GPU'}"
        have = f"{', '.join(types)}, {most} a node at most" if types else f"{most} a node at most"
        yield (
            f"resources.gpu: no node of {name} has {wanted}; it has {have if most else 'no GPU'}",
            lambda nodes: bool(_card(asked, nodes)),
        )
    for (what, kind), count in _more(asked).items():
        label = f"{what}:{kind}" if kind else what
        yield (
            f"resources.gres: no node of {name} has {label}:{count}",
            lambda nodes, what=what, kind=kind, count=count: nodes.has(what, kind) >= count,
        )
    most_cpus = max((nodes.cpus for nodes in all_nodes), default=0)
    yield (
        f"resources.cpu: no node of {name} with the rest has {asked.cpus} CPUs; the most is {most_cpus}",
        lambda nodes: nodes.cpus >= asked.cpus,
    )
    if asked.memory_mb is not None:
        most_memory = max((nodes.memory_mb for nodes in all_nodes), default=0)
        yield (
            f"resources.memory: no node of {name} with the rest has {asked.memory_mb / 1024:.1f} GiB; the most is "
            f"{most_memory / 1024:.1f} GiB",
            lambda nodes: nodes.memory_mb >= asked.memory_mb,
        )


def _card(asked: WorkerRequest, nodes: Nodes) -> str:
    """How these nodes' fitting GPU is asked for: `gpu`, or `gpu:TYPE`; "" when they have none that fits."""
    if not asked.gpu_names:
        return "gpu" if nodes.has("gpu") >= asked.gpus else ""
    for (what, kind), count in sorted(nodes.gres.items()):
        if what == "gpu" and count >= asked.gpus and any(_same(name, kind) for name in asked.gpu_names):
            return f"gpu:{kind}"
    return ""


def _same(name: str, kind: str) -> bool:
    """Whether a type of the cluster (`a100`, `nvidia_a100_80gb_pcie`, `tesla-v100`) is the card of that name."""
    return bool(kind) and (name.lower() == kind.lower() or same_gpu(name, re.sub(r"[_-]+", " ", kind).upper()))


def _more(asked: WorkerRequest) -> dict[tuple[str, str], int]:
    try:
        # `gpu:1` and `gpu` are both a count in Slurm's own spelling.
        words = [word if word.rpartition(":")[2].isdigit() else f"{word}:1" for word in asked.gres.split(",") if word]
        return gres(",".join(words))
    except ValueError as error:
        raise RequestRefused(f"resources.gres: {error}; write it as sbatch takes it, such as nvme:1") from error


def options(asked: WorkerRequest, cluster: Cluster) -> list[str]:
    """The options of sbatch for one such worker, without the array."""
    partition = cluster.partition(asked.partition)
    cards = sorted({card for nodes in (partition.nodes if partition else ()) if (card := _card(asked, nodes))})
    generic = [f"{cards[0] if cards else 'gpu'}:{asked.gpus}"] if asked.gpus else []
    generic += [asked.gres] if asked.gres else []
    said = {
        "partition": asked.partition,
        "account": asked.account,
        "qos": asked.qos,
        "constraint": asked.constraint,
        "gres": ",".join(generic),
        "time": _minutes(asked.wall),
        "mem": f"{asked.memory_mb}M" if asked.memory_mb is not None else "",
    }
    # An option that lacks its value takes the next word for it: that is one of ours, which stands there once more.
    further = [word for option in asked.sbatch for word in (option, "--requeue")]
    return [
        *further,
        f"--nodes={asked.nodes}",
        *(["--ntasks=1"] if asked.nodes == 1 else ["--ntasks-per-node=1", "--no-kill"]),
        f"--cpus-per-task={asked.cpus}",
        *(f"--{key}={value}" for key, value in said.items() if value),
        "--requeue",
        "--open-mode=append",
        f"--signal=B:USR1@{asked.lead}",
    ]


def dry_run(asked: WorkerRequest, cluster: Cluster) -> str:
    """Why the cluster itself would refuse such workers, in its own words; "" when it would take them, if only fewer of
    them at a time, or later (`jobs.submit`). Submits nothing. Raises Unreachable."""
    size = max(1, min(asked.workers, cluster.arrays))
    while True:
        try:
            commands.send("sbatch", "--test-only", *options(asked, cluster), f"--array=0-{size - 1}", "--wrap=true")
            return ""
        except RequestRefused as error:
            said = str(error).rpartition("`: ")[2] or str(error)
        if size == 1 or not states.may_be_too_many(said):
            return "" if states.is_full(said) else said
        size //= 2


def _minutes(wall: float | None) -> str:
    return "" if wall is None else str(max(1, math.ceil(wall / 60)))


def wall_text(wall: float) -> str:
    """A time for people: `90 min`, `48 h`."""
    return f"{wall / 60:g} min" if wall < 7200 else f"{wall / 3600:g} h"


def _near(name: str, known: Iterable[str]) -> str:
    """What a misspelt name may mean, to end a sentence with; "" where no known name is like it."""
    found = difflib.get_close_matches(name, list(known), 1, 0.6)
    return f"; did you mean {found[0]}" if found else ""
