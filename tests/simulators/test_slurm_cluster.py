"""The cluster of the tests is one of Slurm: what administrators, power cuts and other users do to jobs happens here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulators.slurm_cluster import (
    CGROUPS,
    LIMITED,
    SHARED,
    SlurmCluster,
    at_most,
    memory_cgroups,
    until,
)
from tests.simulators.test_machines import Login

LOOP = 'echo "$SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0} $(hostname)" >> runs; sleep 600'
MORE_THAN_ALLOWED = "python3 -c 'x = bytearray(400_000_000); import time; time.sleep(600)'"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Login:
    return Login(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, key: Login) -> Iterator[SlurmCluster]:
    with SlurmCluster.start(tmp_path_factory.mktemp("cluster"), authorized_keys=[key.public]) as made:
        yield made


@pytest.fixture
def cluster(shared: SlurmCluster) -> Iterator[SlurmCluster]:
    """One cluster for all tests, without jobs."""
    yield shared
    shared.run("scancel", "--user=root")
    until(lambda: not shared.ask("squeue", "--noheader", "--all"), "empty queue", shared.told)
    for left in shared.shared.glob("*"):
        left.unlink()


def runs(cluster: SlurmCluster, count: int) -> list[list[str]]:
    """(job, restarts, node) of each start of `LOOP`, once there are as many."""
    file = cluster.shared / "runs"
    until(lambda: file.is_file() and len(file.read_text().splitlines()) >= count, f"{count} starts", cluster.told)
    return [line.split() for line in file.read_text().splitlines()]


def test_a_user_logs_in_and_submits(cluster: SlurmCluster, key: Login) -> None:
    script = "hostname; echo $CUDA_VISIBLE_DEVICES; ls -d /work 2>&1; echo x > /tmp/own"
    job = key.ask(cluster.login, f"cd {SHARED} && sbatch --parsable --gpus=2 -w n2 -o out --wrap {script!r}")
    cluster.await_state(job, "COMPLETED")
    assert (cluster.shared / "out").read_text().splitlines()[:2] == ["n2", "0,1"]
    assert "No such file" in (cluster.shared / "out").read_text(), "a node sees this checkout"
    assert (cluster.nodes["n2"].disk / "tmp/own").is_file()
    assert not (cluster.nodes["n1"].disk / "tmp/own").exists()
    assert "n[1-2]" in key.ask(cluster.login, "sinfo")
    assert "disabled" in key.run(cluster.login, "sacct").stderr


def test_jobs_outlive_the_controller_and_the_daemon_of_a_node(cluster: SlurmCluster) -> None:
    job = cluster.submit(LOOP, "-w", "n1")
    runs(cluster, 1)
    cluster.nodes["n1"].down()
    cluster.restart_controller()
    assert cluster.state(job) == "RUNNING"
    cluster.nodes["n1"].up()
    cluster.ask("scancel", job)
    cluster.await_state(job, "CANCELLED")
    assert len(runs(cluster, 1)) == 1


def test_a_lost_node_ends_its_jobs_and_they_begin_elsewhere(cluster: SlurmCluster) -> None:
    job = cluster.submit(LOOP, "--requeue")
    node = runs(cluster, 1)[0][2]
    cluster.lose(node)
    cluster.ask("scontrol", "update", f"jobid={job}", "StartTime=now")
    first, second = runs(cluster, 2)
    assert (first[0], second[0]) == (job, job)
    assert (first[1], second[1]) == ("0", "1")
    assert first[2] != second[2]
    cluster.bring_back(node)


def test_a_job_over_its_memory_is_killed(cluster: SlurmCluster) -> None:
    job = cluster.submit(MORE_THAN_ALLOWED, "--mem=100")
    cluster.await_state(job, "FAILED")
    assert "ExitCode=0:9" in cluster.ask("scontrol", "show", "job", job)


@pytest.mark.proof  # that memory is watched is proved above, without the kernel
@pytest.mark.skipif(not memory_cgroups(), reason="this host has no cgroups of memory (version 1) to write")
def test_the_kernel_ends_a_job_over_its_memory(tmp_path: Path) -> None:
    with SlurmCluster.start(tmp_path, nodes=1, settings=CGROUPS) as cluster:
        job = cluster.submit(MORE_THAN_ALLOWED, "--mem=100")
        assert cluster.await_state(job, "OUT_OF_MEMORY", "FAILED", "COMPLETED") == "OUT_OF_MEMORY", cluster.told()


@pytest.mark.proof  # tests of the adapter prove that jobs are refused
def test_a_limit_of_jobs_refuses_the_next(tmp_path: Path) -> None:
    with SlurmCluster.start(tmp_path, nodes=1, settings=LIMITED, files={"job_submit.lua": at_most(1)}) as cluster:
        cluster.submit("sleep 600")
        refused = cluster.run("sbatch", "--wrap", "true")
        assert refused.returncode == 1
        assert b"Job violates accounting/QOS policy" in refused.stderr


def test_nothing_of_a_cluster_is_left(tmp_path: Path) -> None:
    with SlurmCluster.start(tmp_path, nodes=1) as cluster:
        cluster.submit("setsid sleep 600 & sleep 600")
        until(lambda: b"sleep 600" in cluster.nodes["n1"].run("ps", "ax").stdout, "a job", cluster.told)
        pids = [pid for part in (cluster.controller, *cluster.nodes.values(), cluster.login) for pid in part.pids()]
        assert len(pids) > 6
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}/cwd")]
