"""The accounting of the tests' cluster is Slurm's own: tries of a task, what it used, limits that are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulators import slurm_accounting
from tests.simulators.slurm_accounting import ACCOUNT, ENFORCED, AccountedCluster
from tests.simulators.slurm_cluster import OTHER_USER, until

EATS = "python3 -c 'x = bytearray(400_000_000); import time; time.sleep(600)'"


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_accounting, "_PROGRAMS", ("no-slurmdbd", "sacct"))
    assert "needs no-slurmdbd: `scripts/setup --dev --slurm`" in slurm_accounting.missing()


@pytest.mark.proof  # 15 s; tests/extensions/slurm/test_slurm_accounting.py reads what it says, in `make test`
def test_the_books_keep_each_try_and_the_limits(tmp_path: Path) -> None:
    with AccountedCluster.start(tmp_path, nodes=1, settings={**ENFORCED, "MinJobAge": "2"}) as cluster:
        eats = cluster.submit(EATS, "--array=0", "--mem=100", "--output=/dev/null")
        again = cluster.submit("sleep 600", "--array=0", "--requeue", "--output=/dev/null")
        cluster.await_state(f"{again}_0", "RUNNING")
        cluster.ask("scontrol", "requeue", f"{again}_0")
        until(lambda: cluster.state(f"{again}_0") == "PENDING", "a requeue", cluster.told)
        cluster.ask("scancel", again)
        cluster.until_forgotten(f"{eats}_0", f"{again}_0")

        def books() -> list[list[str]]:
            jobs = f"--jobs={eats}_0,{again}_0"
            said = cluster.ask("sacct", "-nPD", "--noconvert", jobs, "--format=JobID,State,ExitCode,MaxRSS")
            return [line.split("|") for line in said.splitlines()]

        until(lambda: len(books()) == 5, "both tries in the books", lambda: f"{books()}\n{cluster.told()}")
        job, batch = books()[:2]
        assert job == [f"{eats}_0", "FAILED", "0:9", ""]
        assert int(batch[3]) > 100_000_000, "more than it asked for; how much, when the plugin last looked"
        assert [row[1].split()[0] for row in books() if row[0] == f"{again}_0"] == ["REQUEUED", "CANCELLED"]

        cluster.manage(f"modify user {OTHER_USER} set MaxSubmitJobs=1 where account={ACCOUNT}")
        until(lambda: refused(cluster), "a refusal", cluster.told)


def refused(cluster: AccountedCluster) -> bool:
    done = cluster.run("sbatch", "--array=0-1", "--output=/dev/null", "--wrap=true", user=OTHER_USER)
    return done.returncode == 1 and b"policy" in done.stderr
