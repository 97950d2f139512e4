"""The README's loop on two of the user's own hosts, with the shipped stack file, over real sshds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engine.commands import assert_refused, ok
from tests.engine.harness import COMMAND_PLUGIN, Stack
from tests.engine.test_liveness import expire
from tests.engine.test_moves import owners
from tests.rented.host_stack import HostStack
from tests.rented.world import without_internet
from tests.simulators.host import Host
from tests.simulators.machines import require

STORE = ".local/share/sweepstack/local"


@dataclass
class Lab:
    """A stack, and the hosts that its boxes are on."""

    stack: Stack
    hosts: list[Host]

    def boxes(self) -> list[str]:
        """What lies on the hosts."""
        return [path.name for host in self.hosts for path in sorted(host.home.glob(f"{STORE}/boxes/[!.]*"))]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    require()
    hosts = [Host(tmp_path / name) for name in ("one", "two")]
    python = Path(sys.prefix) / "bin"
    for host in hosts:
        host.say(PATH=f"{python}:/usr/local/bin:/usr/bin:/bin")
        (host.folder / "authorized_keys").write_text((hosts[0].folder / "id.pub").read_text())
    stack = Stack(tmp_path / "sweep", name="sweep-generic")
    stack.env |= {"SWEEPSTACK_SSH_KEY": str(hosts[0].key)}
    stack.env.pop("SSH_AUTH_SOCK", None)
    stack.evidence = stack.checkout / "results" / "sweep-generic"
    without_internet(stack)
    stack.edit_config(
        lambda sweep: sweep.update(
            boxes={f"box-{number}": {"want": "running", "host": host.address} for number, host in enumerate(hosts)}
        )
    )
    stack.edit_config(lambda sweep: sweep["cells"].update(grid={"lr": [0.1, 0.03], "seed": [0, 1]}))
    try:
        yield Lab(stack, hosts)
    finally:
        for native_id in lab_ids(hosts):
            stack.kill_box(native_id)
        for host in hosts:
            host.stop()


def lab_ids(hosts: list[Host]) -> list[str]:
    return [path.name for host in hosts for path in host.home.glob(f"{STORE}/boxes/[!.]*")]


def test_the_loop(lab: Lab) -> None:
    """preview → up → destroy refused → cut → wait → pull → verify → approve → up → half a destroy → destroy → audit."""
    stack = lab.stack
    stack.init()
    ok(stack.pulumi("preview", timeout=180))
    assert lab.boxes() == [], "a preview makes nothing"
    up = ok(stack.up(timeout=300))
    assert len(lab.boxes()) == 2
    assert ("stand-in" in up.text) is not bool(os.environ.get(COMMAND_PLUGIN)), "a stand-in says what it is"
    facts = ok(stack.pulumi("stack", "output", "hosts", "--json")).json()
    assert {name: host["python"].split(".")[0] for name, host in facts.items()} == {"box-0": "3", "box-1": "3"}
    again = ok(stack.pulumi("preview", "--json", timeout=180)).json()["changeSummary"]
    assert not {what: count for what, count in again.items() if what not in ("same", "refresh") and count}, again

    lab.hosts[1].stop()
    status = stack.sweepctl("status", "--json", timeout=120).json()
    assert {cell["state"] for cell in status["cells"]} & {"failed", "lost"} == set(), "unreachable is not failed"
    assert {box["name"]: box["phase"] for box in status["boxes"]}["box-1"] == "unknown"
    assert_refused(stack.destroy(timeout=180))
    lab.hosts[1].start()
    assert len(lab.boxes()) == 2, "a refused destroy ends nothing"

    ok(stack.sweepctl("wait", "done", timeout=400))
    ok(stack.sweepctl("pull", timeout=180))
    verify = ok(stack.sweepctl("verify", "--json", timeout=180)).json()
    assert (verify["verified"], verify["total"]) == (4, 4)
    ok(stack.sweepctl("approve", verify["receipt"]))
    ok(stack.up(timeout=180))

    lab.hosts[1].stop()
    half = stack.destroy("--continue-on-error")
    assert half.rc != 0, str(half)
    assert len(lab.boxes()) == 1, f"box 1 of 2 is gone, and box 2 of 2 is nobody's to write off\n{half}"
    expire(stack)
    lab.hosts[1].start()
    births = len(stack.births())
    ok(stack.up())
    assert (len(lab.boxes()), len(stack.births())) == (1, births), "no cell is left to train: nothing is made again"
    ok(stack.destroy())
    assert lab.boxes() == []
    ok(stack.run("sweepctl", "audit"))


@pytest.mark.proof  # unit/profiles/test_rentals.py, unit/provider/test_box_address.py; on the engine: test_mistakes.py
def test_mistakes_about_hosts_are_said_before_anything_is_made(lab: Lab) -> None:
    stack = lab.stack
    stack.init()

    def hosts(one: str, two: str) -> None:
        boxes = {"box-0": {"host": one}, "box-1": {"host": two}}
        stack.edit_config(lambda sweep: sweep.update(boxes=boxes))

    hosts("root@h:22:23", lab.hosts[1].address)  # others: tests/unit/profiles/test_rentals.py
    result = stack.pulumi("preview", timeout=180)
    assert result.rc != 0
    assert "expected a host such as" in result.text, str(result)
    hosts(f"{lab.hosts[0].user}@127.0.0.1:1", lab.hosts[1].address)
    refused = stack.up(timeout=180)
    assert refused.rc != 0
    assert "can't be reached" in refused.text, str(refused)
    assert not list((Path(lab.hosts[0].home) / STORE).glob("boxes/[!.]*"))
    assert os.path.exists(stack.config_file)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[HostStack, Host]]:
    """A sweep whose cells are held, on a host; another host with a store of its own, which it has no box on yet."""
    stack = HostStack(tmp_path / "sweep", cells=tuple(f"seed{n}" for n in range(6)))
    other = Host(tmp_path / "other")
    (other.folder / "authorized_keys").write_text((stack.host.folder / "id.pub").read_text())
    other.say(**stack.host.environment)
    try:
        stack.write_config()
        stack.hold(*(f"seed{n}" for n in range(8)))
        stack.init()
        yield stack, other
    finally:
        for native_id in lab_ids([other]):
            stack.kill_box(native_id)
        other.stop()
        stack.end()


@pytest.mark.proof  # moves: tests/engine/test_stop.py; a host that is lost: unit/provider/test_rented_host.py
def test_cells_stay_where_they_are_and_move_when_a_host_is_lost(pair: tuple[HostStack, Host]) -> None:
    """A second box takes over what has not started; more cells move none; what a lost host had not sealed runs on the
    other one, each cell once but for what a restart of that one cut off."""
    stack, other = pair
    ok(stack.up())
    begun = stack.started("box-0")
    second_box = {"want": "running", "host": other.address}
    stack.edit_config(lambda sweep: sweep["boxes"].update({"box-1": second_box}))
    ok(stack.up())
    first = owners(stack)
    assert set(begun) <= first["box-0"], f"a cell that had started moved: {begun}, {first}"
    assert stack.started("box-0") == begun, "a cell started twice"
    assert set.union(*first.values()) == set(stack.cells)
    assert {box: len(cells) > 0 for box, cells in first.items()} == {"box-0": True, "box-1": True}
    assert not first["box-0"] & first["box-1"]
    stack.edit_config(lambda sweep: sweep["cells"]["grid"].update(seed=list(range(8))))
    stack.cells = tuple(f"seed{n}" for n in range(8))
    ok(stack.up())
    second = owners(stack)
    assert all(first[box] <= second[box] for box in first), f"cells moved: {first} → {second}"
    assert sum(map(len, second.values())) == len(stack.cells), second

    (lost,) = lab_ids([other])
    stack.kill_box(lost)  # for good
    other.stop()
    stack.edit_config(lambda sweep: sweep["boxes"]["box-1"].update(want="gone"))
    locked = stack.up()
    assert locked.rc != 0, f"silence was taken for an end\n{locked}"
    assert owners(stack)["box-1"] == second["box-1"], "cells left a box that may run"
    ok(stack.sweepctl("give-up", "data/box-1", "--reason", "it burnt down"))
    unproved = stack.up()
    assert unproved.rc != 0, f"silence was taken for an end\n{unproved}"
    word = ("sweepctl", "confirm", "gone", "--stack", stack.name, "box-1", "--saw")
    assert " ".join(word) in unproved.text, str(unproved)
    ok(stack.run(*word, "smoke"))
    again = stack.started("box-0")
    stack.kill_box(stack.native_id("box-0"))  # the other host restarts meanwhile
    stack.host.stop()
    stack.host.start()
    ok(stack.up())
    assert owners(stack)["box-0"] == set(stack.cells)
    stack.release()
    stack.wait_done()
    assert stack.started("box-0") == sorted([*stack.cells, *again]), "a cell ran twice"
