"""How many more tasks a user may submit, by the limits of accounts and QOS (`MaxSubmitJobs`).

One limit holds, as Slurm itself has it: that of the partition's QOS, else that of the job's QOS, else that of the
account. A limit of jobs that run (`MaxJobs`) lets more be submitted: they wait, and `states` says for what. What
several users share is not counted here: sbatch refuses what is over it, and `jobs.submit` tries less.
"""

from __future__ import annotations

import os

from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import Unreachable

from . import commands
from .cluster import Cluster
from .request import WorkerRequest

USUAL_QOS = "normal"
"""Slurm takes it where neither the job nor the account names one."""


@dataclass(frozen=True)
class _Account:
    name: str
    partition: str
    default_qos: str
    qos: tuple[str, ...]
    most: int | None

    @property
    def usual_qos(self) -> str:
        return self.default_qos or (self.qos[0] if len(self.qos) == 1 else USUAL_QOS)


def room_left(asked: WorkerRequest, cluster: Cluster) -> int | None:
    """How many more tasks this user may submit that ask for this; None where no limit is known. Asks the database: only
    where the cluster keeps to limits. Blocks for seconds. Raises Unreachable."""
    user, found = _user(), cluster.partition(asked.partition)
    partition = found.name if found is not None else asked.partition
    account = _account(cluster.name, user, asked.account, partition)
    if account is None:
        return None
    said = _rows(3, "show", "qos", "format=name,flags,maxsubmitjobsperuser")
    limits = {name: _limit(most) for name, _, most in said}
    flags = {name: text for name, text, _ in said}
    own, of_partition = asked.qos or account.usual_qos, found.own_qos if found is not None else ""
    order = [(own, ("", own, "")), (of_partition, ("", "", partition))]
    if "OverPartQOS" not in flags.get(own, ""):
        order.reverse()
    for name, jobs in order:
        if (most := limits.get(name)) is not None:
            return max(0, most - _submitted(*jobs))
    return None if account.most is None else max(0, account.most - _submitted(account.name, "", account.partition))


def _account(cluster: str, user: str, wanted: str, partition: str) -> _Account | None:
    """What the user may do in an account on this cluster, or in the default one for ""; in the partition, if there is
    something of its own for it. None where the user is not in it: sbatch says so."""
    words = "format=account,partition,defaultqos,qos,maxsubmitjobs"
    said = _rows(5, "show", "assoc", f"cluster={cluster}", f"user={user}", words)
    rows = [_Account(name, where, usual, tuple(qos.split(",")), _limit(most)) for name, where, usual, qos, most in said]
    if not wanted and len({row.name for row in rows}) > 1:
        usual = _rows(1, "show", "user", f"name={user}", f"cluster={cluster}", "format=defaultaccount")
        if not usual:
            return None
        wanted = usual[0][0]
    here = [row for row in rows if row.name == (wanted.lower() or row.name) and row.partition in ("", partition)]
    return max(here, key=lambda row: bool(row.partition), default=None)


def _rows(count: int, *words: str) -> list[list[str]]:
    """The rows of an answer of sacctmgr, each with so many fields."""
    said = commands.ask("sacctmgr", "--noheader", "--parsable2", *words).splitlines()
    rows = [line.split("|") for line in said if line.strip()]
    if odd := [row for row in rows if len(row) != count]:
        raise Unreachable(f"sacctmgr answered what can't be read: {'|'.join(odd[0])[:200]!r}")
    return rows


def _limit(text: str) -> int | None:
    if text and not text.isdigit():
        raise Unreachable(f"sacctmgr answered what is no limit: {text[:200]!r}")
    return int(text) if text else None


def _submitted(account: str, qos: str, partition: str) -> int:
    """How many tasks of the user have not ended, of this account, QOS and partition; "" for all."""
    said = commands.ask("squeue", "--noheader", "--all", "--array", f"--user={os.geteuid()}", "--format=%a|%q|%P")
    wanted = (account, qos, partition)
    return sum(
        all(not name or name == has for name, has in zip(wanted, line.split("|"))) for line in said.splitlines() if line
    )


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError as error:
        raise Unreachable(f"the user {os.geteuid()} has no name here") from error
