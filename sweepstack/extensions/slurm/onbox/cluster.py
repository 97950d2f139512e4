"""What a Slurm cluster has: asked for each time, never guessed."""

from __future__ import annotations

import re
from typing import Iterator

from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import Unreachable

from . import commands

_KEY = re.compile(r"(?:^| )([A-Za-z][A-Za-z0-9_/:]*)=")
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_GRES = re.compile(r"([A-Za-z0-9_./-]+)(?::([A-Za-z][A-Za-z0-9_.-]*))?:(\d+)([KMGT]?)(?:\([^)]*\))?")
NOWHERE = ("(null)", "N/A", "NONE", "")
"""Slurm's ways to say that there is none."""


@dataclass(frozen=True)
class Nodes:
    """Nodes of one partition that are alike. `gres`: (name, type) → how many on each."""

    count: int
    cpus: int
    memory_mb: int
    features: frozenset[str] = frozenset()
    gres: dict[tuple[str, str], int] = field(default_factory=dict)

    def has(self, name: str, kind: str = "") -> int:
        """How many of a generic resource each of them has; `kind` "" for any type."""
        return sum(
            count
            for (found, of), count in self.gres.items()
            if found == name and (not kind or of.lower() == kind.lower())
        )


@dataclass(frozen=True)
class Partition:
    """One partition. `wall`: seconds, None for no limit; `usual`: what a job gets that names no time."""

    name: str
    up: bool
    default: bool
    wall: float | None
    usual: float | None
    nodes: tuple[Nodes, ...] = ()
    accounts: tuple[str, ...] = ()
    """Those that it admits; empty: all."""
    qos: tuple[str, ...] = ()
    own_qos: str = ""
    """Whose limits hold for its jobs, before those of their own."""

    @property
    def limit(self) -> float | None:
        """Seconds that a job without a time of its own may run."""
        return self.usual if self.usual is not None else self.wall


@dataclass(frozen=True)
class Cluster:
    """`arrays`: the most tasks of one array. `kill_wait`: seconds from SIGTERM to SIGKILL. `limits`: whether it keeps
    to limits of accounts and QOS, which the site's accounting database has."""

    name: str
    version: str
    arrays: int
    kill_wait: float
    limits: bool
    partitions: tuple[Partition, ...]

    def partition(self, name: str) -> Partition | None:
        """The partition of this name; for "" the default one. None where there is none."""
        for partition in self.partitions:
            if partition.name == name or (not name and partition.default):
                return partition
        return None


def read_cluster() -> Cluster:
    """The cluster now. Reads only; blocks for seconds. Raises Unreachable."""
    config = settings()
    groups: dict[str, list[Nodes]] = {}
    said = commands.ask("sinfo", "--noheader", "--all", "--local", "--exact", "--format=%R|%D|%c|%m|%f|%G")
    for line in said.splitlines():
        name, nodes = _nodes(line)
        groups.setdefault(name, []).append(nodes)
    said = commands.ask("scontrol", "--oneliner", "--all", "show", "partition")
    partitions = tuple(
        _partition(fields, groups) for fields in map(pairs, said.splitlines()) if "PartitionName" in fields
    )
    if not partitions:
        raise Unreachable(f"scontrol shows no partition: {said.strip()[:200]!r}")
    return Cluster(
        config["ClusterName"],
        config.get("SLURM_VERSION", ""),
        max(1, _whole(config.get("MaxArraySize", ""), 1001)),
        float(_whole(config.get("KillWait", "").split(" ")[0], 30)),
        config.get("AccountingStorageType", "").endswith("slurmdbd")
        and "limits" in config.get("AccountingStorageEnforce", ""),
        partitions,
    )


def settings() -> dict[str, str]:
    """The lines of `scontrol show config`. Raises Unreachable, also when it does not name the cluster."""
    found: dict[str, str] = {}
    for line in commands.ask("scontrol", "show", "config").splitlines():
        key, equals, value = line.partition("=")
        if equals:
            found.setdefault(key.strip(), value.strip())
    if not found.get("ClusterName"):
        raise Unreachable("`scontrol show config` does not name its cluster")
    return found


def pairs(line: str) -> dict[str, str]:
    """`Key=value Key=value` of `scontrol --oneliner`, whose values may hold blanks."""
    found = list(_KEY.finditer(line))
    ends = [match.start() for match in found[1:]] + [len(line)]
    return {match[1]: line[match.end() : end].strip() for match, end in zip(found, ends)}


def seconds(text: str) -> float | None:
    """A time of Slurm (`30`, `5:00`, `2:30:00`, `1-12`, `1-12:00:00`) in seconds; None for no limit. Raises
    ValueError."""
    if text.lower() in ("unlimited", "infinite"):
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no time of Slurm")
    days, one, two, three = (int(part) if part else None for part in match.groups())
    if days is not None:  # days-hours[:minutes[:seconds]]
        return float(days * 86400 + (one or 0) * 3600 + (two or 0) * 60 + (three or 0))
    if three is not None:
        return float((one or 0) * 3600 + (two or 0) * 60 + three)
    return float((one or 0) * 60 + (two or 0))  # minutes[:seconds]


def gres(text: str) -> dict[tuple[str, str], int]:
    """`gpu:a100:4(S:0-1),nvme:1` as (name, type) → count. Raises ValueError."""
    found: dict[tuple[str, str], int] = {}
    if text in NOWHERE:
        return found
    for word in _outside_brackets(text):
        match = _GRES.fullmatch(word)
        if match is None:
            raise ValueError(f"{word!r} is no generic resource")
        key = (match[1], match[2] or "")
        found[key] = found.get(key, 0) + int(match[3]) * 1024 ** ("KMGT".index(match[4]) + 1 if match[4] else 0)
    return found


def _outside_brackets(text: str) -> Iterator[str]:
    """The parts of a list between its commas; a comma in brackets does not end a part."""
    word, depth = "", 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            yield word
            word = ""
        else:
            word += char
    yield word


def _nodes(line: str) -> tuple[str, Nodes]:
    try:
        name, count, cpus, memory, features, resources = line.split("|")
        known = frozenset(word for word in features.split(",") if word not in NOWHERE)
        return name, Nodes(int(count), int(cpus), int(memory), known, gres(resources))
    except ValueError as error:
        raise Unreachable(f"sinfo answered what can't be read ({error}): {line[:200]!r}") from error


def _partition(fields: dict[str, str], groups: dict[str, list[Nodes]]) -> Partition:
    name = fields["PartitionName"]
    try:
        usual = fields.get("DefaultTime", "NONE")
        return Partition(
            name,
            fields.get("State", "") == "UP",
            fields.get("Default") == "YES",
            seconds(fields.get("MaxTime", "UNLIMITED")),
            None if usual in NOWHERE else seconds(usual),
            tuple(groups.get(name, ())),
            _names(fields.get("AllowAccounts", "ALL")),
            _names(fields.get("AllowQos", "ALL")),
            "" if fields.get("QoS", "") in NOWHERE else fields["QoS"],
        )
    except ValueError as error:
        raise Unreachable(f"the partition {name} can't be read: {error}") from error


def _names(text: str) -> tuple[str, ...]:
    return () if text == "ALL" or text in NOWHERE else tuple(text.split(","))


def _whole(text: str, otherwise: int) -> int:
    return int(text) if text.isdigit() else otherwise
