"""Pods that are machines: what a stop wipes, what a volume keeps, what a start draws anew."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.simulators import machines
from tests.simulators.core import SimServer
from tests.simulators.runpod import KEY, Boot, RunPodSim
from tests.simulators.runpod.hosts import RealHosts
from tests.simulators.test_runpod_sim import act, create, get, volume

MOUNT = "/sweepstack/mnt/durable"
START_COMMAND = (
    'bash -c "mkdir -p /run/sshd /root/.ssh && printenv PUBLIC_KEY > /root/.ssh/authorized_keys'
    ' && ssh-keygen -A > /dev/null && exec /usr/sbin/sshd -D -e"'
)


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[RunPodSim]:
    machines.require()
    sim = RunPodSim(state=tmp_path / "sim", machines=True, boot=Boot(reads=0))
    with SimServer(sim):
        yield sim
        sim.check()


@pytest.fixture
def client(sim: RunPodSim) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {KEY}", "User-Agent": "tests"}
    with httpx.Client(base_url=sim.url, headers=headers, timeout=120) as client:
        yield client


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


def ready(client: httpx.Client, pod: str) -> dict[str, Any]:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if (seen := get(client, pod))["runtime"]:
            return seen
        time.sleep(0.05)
    raise AssertionError("never ready")


def ssh(seen: dict[str, Any], key: Path, command: str) -> str:
    direct = seen["ssh"]["direct"]
    options = ["-F", "/dev/null", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    argv = ["ssh", *options, "-o", "BatchMode=yes", "-i", str(key), "-p", str(direct["port"])]
    done = subprocess.run([*argv, f"root@{direct['host']}", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("args", ["", START_COMMAND], ids=["image", "start-command"])
def test_a_machine_lives_as_its_pod_does(sim: RunPodSim, client: httpx.Client, key: Path, args: str) -> None:
    kept = volume(client)["id"]
    pod = create(
        client,
        args=args,
        env={"PUBLIC_KEY": key.with_suffix(".pub").read_text().strip(), "SWEEPSTACK_TAG": "t"},
        mounts={"network": [{"volumeId": kept, "path": MOUNT}]},
        gpu={"id": "NVIDIA A40", "count": 2},
    )["id"]
    seen = ready(client, pod)
    assert ssh(seen, key, "nvidia-smi -L | wc -l") == "2"
    ssh(seen, key, f"echo kept > {MOUNT}/file; echo lost > /sweepstack/file")
    assert (sim.volumes.all[kept].folder / "file").read_text() == "kept\n"  # type: ignore[operator]

    assert act(client, pod, "stop").status_code == 200
    assert isinstance(sim.hosts, RealHosts)
    assert not sim.hosts.machine(pod).alive
    sim.faults.add("zero_gpus", "POST /v2/pods/{id}/action")
    assert act(client, pod, "start").status_code == 200
    again = ready(client, pod)
    assert again["ssh"]["direct"]["port"] != seen["ssh"]["direct"]["port"]
    assert ssh(again, key, f"cat {MOUNT}/file; ls /sweepstack; nvidia-smi -L | wc -l").split() == ["kept", "mnt", "0"]

    machine = sim.hosts.machine(pod)
    assert client.delete(f"/v2/pods/{pod}").status_code == 204
    assert not machine.alive
    assert (sim.volumes.all[kept].folder / "file").read_text() == "kept\n"  # type: ignore[operator]


def test_a_volume_disk_outlives_a_stop(sim: RunPodSim, client: httpx.Client, key: Path) -> None:
    pod = create(
        client,
        env={"PUBLIC_KEY": key.with_suffix(".pub").read_text().strip()},
        mounts={"persistent": {"size": 10, "path": "/workspace"}},
    )["id"]
    ssh(ready(client, pod), key, "echo kept > /workspace/file")
    act(client, pod, "stop")
    act(client, pod, "start")
    assert ssh(ready(client, pod), key, "cat /workspace/file") == "kept"


def test_a_start_command_without_an_sshd_is_told(sim: RunPodSim, client: httpx.Client) -> None:
    pod = create(client, args="false")["id"]
    end = time.monotonic() + 60
    while not sim.violations and time.monotonic() < end:
        assert get(client, pod)["runtime"] is None
        time.sleep(0.1)
    assert f"the machine of pod {pod} did not start" in sim.pardon()[0]
