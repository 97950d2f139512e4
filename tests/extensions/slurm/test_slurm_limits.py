"""How many more tasks may be submitted, by what `sacctmgr` and `squeue` print: the texts are those of Slurm 22.05.8."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweepstack.extensions.slurm.onbox import cluster, commands, jobs, limits
from sweepstack.extensions.slurm.onbox.cluster import Cluster, Partition
from sweepstack.extensions.slurm.onbox.request import WorkerRequest
from sweepstack.onbox.common.errors import Unreachable

MAIN = Partition("main", True, True, None, None)
LAB = Cluster("lab", "22.05.8", 1001, 30.0, True, (MAIN, replace(MAIN, name="short", default=False, own_qos="part")))
ACCOUNTS = "chem|||normal|\nphysics|||debug,long,normal|3\nphysics|short|||2\n"
QOS = "normal||\nlong||5\ndebug||1\npart||4\nover|OverPartQOS|6\n"
QUEUE = "physics|normal|main\nphysics|long|main\nchem|normal|main\nchem|normal|short\n"


class Site:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.accounts, self.qos, self.queue, self.usual = ACCOUNTS, QOS, QUEUE, "physics\n"
        self.asked: list[tuple[str, ...]] = []
        monkeypatch.setattr(commands, "ask", self._ask)

    def _ask(self, program: str, *words: str, **_: object) -> str:
        self.asked.append((program, *words))
        if program == "squeue":
            return self.queue
        return {"assoc": self.accounts, "qos": self.qos, "user": self.usual}[words[3]]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(monkeypatch)


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        (WorkerRequest(account="physics"), 1),  # 3, less what the account has in the partition
        (WorkerRequest(account="Physics"), 1),
        (WorkerRequest(), 1),  # the default account
        (WorkerRequest(account="chem"), None),
        (WorkerRequest(account="biology"), None),
        (WorkerRequest(account="physics", qos="long"), 4),  # before the account's own limit
        (WorkerRequest(account="physics", qos="debug"), 1),
        (WorkerRequest(account="chem", partition="short"), 3),  # the partition's own QOS
        (WorkerRequest(account="physics", partition="short", qos="over"), 6),
        (WorkerRequest(account="physics", partition="short", qos="debug"), 3),
    ],
)
def test_the_limit_that_holds_is_the_one_of_slurm(site: Site, asked: WorkerRequest, left: int | None) -> None:
    assert limits.room_left(asked, LAB) == left


def test_other_clusters_of_the_database_have_other_limits(site: Site) -> None:
    limits.room_left(WorkerRequest(), LAB)
    assert ["cluster=lab" in words for words in site.asked if {"assoc", "user"} & set(words)] == [True, True]


@pytest.mark.parametrize(
    ("usual", "left"),
    [("||debug|", 1), ("||debug,normal|", None), ("|debug|debug,normal|", 1)],
)
def test_the_qos_of_a_job_that_names_none(site: Site, usual: str, left: int | None) -> None:
    site.accounts = f"physics|{usual}\n"
    assert limits.room_left(WorkerRequest(), LAB) == left


@pytest.mark.parametrize("usual", ["", "\n"])
def test_a_default_account_that_is_not_known_is_none(site: Site, usual: str) -> None:
    site.usual = usual
    assert limits.room_left(WorkerRequest(), LAB) is None


def test_a_limit_of_the_partition_for_the_account_comes_first(site: Site) -> None:
    site.qos = "normal||\n"
    site.queue = "physics|normal|short\nphysics|normal|main\nphysics|normal|main\n"
    assert limits.room_left(WorkerRequest(account="physics", partition="short"), LAB) == 1


@pytest.mark.parametrize("odd", ["what is this", "normal||many"])
def test_an_answer_that_does_not_read_leaves_it_to_sbatch(site: Site, odd: str) -> None:
    site.qos = odd
    with pytest.raises(Unreachable):
        limits.room_left(WorkerRequest(), LAB)
    assert jobs.allowed(WorkerRequest(), LAB, 9) == 9


def test_nothing_is_asked_where_no_limit_is_kept(site: Site) -> None:
    assert jobs.allowed(WorkerRequest(), replace(LAB, limits=False), 9) == 9
    assert site.asked == []
    assert jobs.allowed(WorkerRequest(), LAB, 9) == 1


@pytest.mark.parametrize(
    ("kept", "is_"), [("none", False), ("associations", False), ("associations,limits,qos", True), (None, False)]
)
def test_limits_are_kept_where_the_controller_says_so(
    monkeypatch: pytest.MonkeyPatch, kept: str | None, is_: bool
) -> None:
    config = "ClusterName = lab\nAccountingStorageType = accounting_storage/slurmdbd\n"
    config += f"AccountingStorageEnforce = {kept}\n" if kept else ""

    def ask(program: str, *words: str, **_: object) -> str:
        if program == "sinfo":
            return "short|2|8|8000|(null)|(null)\n"
        return config if "config" in words else "PartitionName=short QoS=part State=UP"

    monkeypatch.setattr(commands, "ask", ask)
    found = cluster.read_cluster()
    assert found.limits is is_
    assert found.partitions[0].own_qos == "part"
