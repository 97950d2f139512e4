"""A simulated box by itself: it finds its key where the vendor puts it, and reaches its platform until it is cut."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.simulators import machines
from tests.simulators.core import SimServer, VirtualClock
from tests.simulators.machines import Machine
from tests.simulators.own_keys import OWN
from tests.simulators.runpod import KEY, Boot, RunPodSim
from tests.simulators.test_machines import Login
from tests.simulators.test_runpod_machines import START_COMMAND
from tests.simulators.test_runpod_sim import create, get
from tests.simulators.vastai import Machine as Host
from tests.simulators.vastai import VastSimulator
from tests.simulators.vastai_fixtures import START, rent, sdk, until

ENVIRON = "tr '\\0' '\\n' < /proc/1/environ"
STOP_ITSELF = """
import json, sys, urllib.request
of_first = dict(line.split("=", 1) for line in open("/proc/1/environ").read().split("\\0") if "=" in line)
method, url, key, body, seconds = json.loads(sys.argv[1])
headers = {"Authorization": "Bearer " + of_first[key], "Content-Type": "application/json", "User-Agent": "box"}
call = urllib.request.Request(url, json.dumps(body).encode(), headers, method=method)
with urllib.request.urlopen(call, timeout=seconds) as answer:
    print(answer.status)
"""


@dataclass
class Box:
    """One on a platform. `key`: the name of its key's variable; `stop`: how it stops itself."""

    sim: Any
    id: str
    machine: Machine
    key: str
    stop: tuple[str, str, dict[str, str]]
    login: Login

    def stop_itself(self, seconds: float = 60) -> str:
        method, path, body = self.stop
        told = json.dumps([method, self.sim.url + path, self.key, body, seconds])
        done = self.machine.run("python3", "-c", STOP_ITSELF, told, seconds=120)
        return (done.stdout + done.stderr).decode()


@contextmanager
def rented(platform: str, folder: Path, **faults: str) -> Iterator[Box]:
    machines.require()
    login = Login(folder)
    sim: Any
    if platform == "runpod":
        sim = RunPodSim(state=folder / "sim", machines=True, boot=Boot(reads=0))
    else:
        sim = VastSimulator(clock=VirtualClock(START), state=folder / "sim", machines=True)
        sim.act("set", {"boot_reads": 0, "stop_reads": 0, "start_reads": 0})
    for kind, match in faults.items():
        sim.faults.add(kind, match)
    sim.act("session_env", {"on": "session" in folder.name})
    with SimServer(sim):
        if platform == "runpod":
            headers = {"Authorization": f"Bearer {KEY}", "User-Agent": "tests"}
            with httpx.Client(base_url=sim.url, headers=headers, timeout=120) as client:
                id = create(client, args=START_COMMAND, env={"PUBLIC_KEY": login.public})["id"]
                end = time.monotonic() + 120
                while not get(client, id)["runtime"]:
                    assert time.monotonic() < end, "never ready"
                    time.sleep(0.05)
            stop = ("POST", f"/v2/pods/{id}/action", {"action": "stop"})
            yield Box(sim, id, sim.hosts.machine(id), "RUNPOD_API_KEY", stop, login)
        else:
            sim.add_account("ann")
            sim.world.market.add(Host(1, 11))
            ann = sdk(sim)
            ann.create_ssh_key(login.public)
            number = rent(ann)
            until(ann, number, "running")
            stop = ("PUT", f"/api/v0/instances/{number}/", {"state": "stopped"})
            yield Box(sim, str(number), sim.world.boxes.machines[number], "CONTAINER_API_KEY", stop, login)
        sim.check()


@pytest.mark.parametrize("platform", ["runpod", "vastai"])
def test_it_stops_itself_with_the_key_of_its_first_process(platform: str, tmp_path: Path) -> None:
    """It hears the answer, and is off a moment later. A session over SSH has not got the key."""
    with rented(platform, tmp_path) as box:
        key = box.sim.own_keys.of(box.id)
        assert f"{box.key}={key}" in box.machine.run("sh", "-c", ENVIRON).stdout.decode()
        assert box.id in box.machine.run("sh", "-c", ENVIRON).stdout.decode()
        assert key not in box.login.ask(box.machine, "env; bash -lc env")
        assert box.stop_itself() == "200\n"
        ends = time.monotonic() + 60
        while box.machine.alive:
            assert time.monotonic() < ends, "it is not off"
            time.sleep(0.05)
        box.sim.settle()
        rental = box.sim.ledger.get(box.id)
        assert (rental.acts[-1].what, rental.acts[-1].by) == ("stop", OWN)
        assert rental.state in ("EXITED", "exited")


@pytest.mark.parametrize("platform", ["runpod", "vastai"])
def test_sessions_have_it_where_an_image_writes_it_down(platform: str, tmp_path: Path) -> None:
    folder = tmp_path / "session"
    folder.mkdir()
    with rented(platform, folder) as box:
        assert f"{box.key}={box.sim.own_keys.of(box.id)}" in box.login.ask(box.machine, "env")


@pytest.mark.parametrize(("platform", "create"), [("runpod", "POST /v2/pods"), ("vastai", "PUT /api/v0/asks/{id}/")])
def test_without_a_key_in_its_environment(platform: str, create: str, tmp_path: Path) -> None:
    with rented(platform, tmp_path, no_key=create) as box:
        said = box.machine.run("sh", "-c", ENVIRON).stdout.decode()
        assert box.key not in said
        assert box.id in said
        assert "KeyError" in box.stop_itself()


@pytest.mark.parametrize("platform", ["runpod", "vastai"])
def test_cut_off_it_reaches_nothing_and_what_it_sent_never_arrives(platform: str, tmp_path: Path) -> None:
    with rented(platform, tmp_path) as box:
        box.sim.act("isolate", {"id": box.id})
        assert "timed out" in box.stop_itself(seconds=1.0)
        with socket.create_connection((box.machine.host, box.machine.port)) as knocking:
            knocking.settimeout(1.0)
            with pytest.raises(TimeoutError):
                knocking.recv(1)
        box.sim.act("isolate", {"id": box.id, "isolated": False})
        assert box.login.ask(box.machine, "echo there") == "there"
        assert box.sim.ledger.get(box.id).acts[-1].what == "create", "it asks again, or it is not stopped"
        assert box.stop_itself() == "200\n"


def test_a_box_without_a_machine_can_not_be_cut_off(runpod_sim: RunPodSim, ann: httpx.Client) -> None:
    with pytest.raises(ValueError, match="no machines"):
        runpod_sim.act("isolate", {"id": create(ann)["id"]})
