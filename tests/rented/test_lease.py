"""The lease, attacked: a rented box that is not needed any more stops billing compute, or every channel says why not.

The platforms are those of tests/simulators, whose boxes are machines that hold the vendor's key of their own; their
books say who stopped what, and how long compute was billed. The stack file asks for 10 minutes, and the box's
spec.json is then told seconds, which count by a clock of the kernel; a month by the platform's clock follows.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine.commands import ok
from tests.engine.harness import Stack
from tests.rented.host_stack import HostStack
from tests.rented.test_autodl import boxes, data
from tests.rented.test_autodl import instance as instance  # a fixture; no `__all__`: tests/rented/retired takes all
from tests.rented.test_stores import Lab
from tests.rented.world import World, rented, without_internet
from tests.simulators.host import Host
from tests.simulators.ledger import HOUR, Rental
from tests.simulators.own_keys import OWN, OWNER
from tests.simulators.rental import stack_of, whole_rentals

LEASE, MARGIN, MONTH = 3.0, 600.0, 30 * 24 * HOUR
"""Seconds: the lease of a box, what may be billed beyond it, and how long no command looks at it."""
STOP_SECONDS = 300.0
"""How long a test waits for what a box is to do: far longer than it takes, and well within the margin."""
FIRST, *OTHERS = whole_rentals()
PLATFORMS = [FIRST, *OTHERS]
OTHER_THAN_THE_LOOP = [pytest.param(FIRST, marks=pytest.mark.proof), *OTHERS]
"""tests/rented/test_loop.py plays the first one, in every run."""
START = {"runpod": "POST /v2/pods/{id}/action", "vastai": "PUT /api/v0/instances/{id}/"}


def wait(what: Callable[[], object], words: Callable[[], str]) -> None:
    ends = time.monotonic() + STOP_SECONDS
    while not what():
        assert time.monotonic() < ends, words()
        time.sleep(0.1)


def shorten(folder: Path, seconds: float = LEASE, **more: Any) -> None:
    """The lease of the box with this SWEEP folder becomes seconds, and so do the pauses between its tries."""
    spec = json.loads((folder / "spec.json").read_text())
    spec["lease"]["seconds"] = seconds
    if spec["lease"]["how"]:
        spec["lease"]["how"]["gone_seconds"] = 2.0
    spec |= {"off_again_seconds": [1.0] * 1000, **more}
    (folder / "spec.new").write_text(json.dumps(spec))
    os.replace(folder / "spec.new", folder / "spec.json")


def journal(folder: Path, *names: str) -> list[dict[str, Any]]:
    """Its whole lines of these events, or of all."""
    path = folder / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [entry for entry in map(json.loads, lines) if not names or entry["event"] in names]


@dataclass
class Left:
    """A box that was brought up and then left alone. `folder`: its SWEEP folder, on the box's disk."""

    world: World
    id: str
    folder: Path

    @property
    def books(self) -> Rental:
        self.world.sim.settle()
        found: Rental = self.world.sim.ledger.get(self.id)
        return found

    @property
    def now(self) -> float:
        """By the platform's clock, which goes as ours until a month passes."""
        moment: float = self.world.sim.clock.now()
        return moment

    def computes(self) -> bool:
        return self.books.state in self.world.its.computes

    def until(self, what: Callable[[], object], words: str) -> None:
        told = ("box-off", "box-off-failed", "lease-over", "runner-stopped")
        wait(what, lambda: f"never: {words}; {journal(self.folder, *told)[-4:]}; {self.books.acts}; {self.said()}")

    def said(self) -> str:
        log = self.folder / "runner.log"
        return log.read_text()[-1500:] if log.exists() else ""

    def sealed(self) -> bool:
        return len(journal(self.folder, "cell-sealed")) > 0

    def failed(self, words: str) -> bool:
        """Whether a try to stop it came to nothing, for this reason."""
        return any(words in entry["reason"] for entry in journal(self.folder, "box-off-failed"))

    def assert_stopped_in_time(self, last_need: float) -> None:
        """And that a month later it has billed no more compute; that it stopped itself, was not ended, and is whole."""
        self.world.sim.clock.advance(MONTH)
        hours = self.books.hours(self.world.its.computes, last_need, self.now)
        assert hours <= (LEASE + MARGIN) / HOUR, self.books
        assert {act.what for act in self.books.acts if act.by == OWN} == {"stop"}
        assert self.books.ended is None
        events = journal(self.folder, "box-off")
        assert events, "the journal has the stop"
        assert events[-1]["why"] == "lease"

    def status(self) -> str:
        """What a person is told who comes back."""
        return self.world.stack.sweepctl("status", timeout=180).text


@contextmanager
def left(
    platform: str, base: Path, *, making: tuple[str, ...] = (), train: str = "", volume: bool = False
) -> Iterator[Left]:
    """One cell on one box; no command looks at it once `up` is through. `making`: faults of its create; `train`: lines
    among the job's imports; `volume`: it mounts one that outlives it."""
    with rented(platform, base, stack_of(platform)) as world:
        stack = world.stack
        without_internet(stack)
        stack.edit_config(lambda sweep: sweep["cells"].update(grid={"lr": [0.1], "seed": [0]}))
        stack.edit_config(lambda sweep: sweep.update(lease="10m"))
        if train:
            job = stack.checkout / "examples/digits/train.py"
            job.write_text(job.read_text().replace("import numpy as np\n", f"import numpy as np\n{train}", 1))
        if platform == "vastai":
            world.sim.act("set", {"stop_reads": 0})  # no command looks at it
        for kind in making:
            world.sim.faults.add(kind, world.its.create)
        if volume:
            stack.edit_config(lambda sweep: sweep.update(mounts={"/ckpt": {"source": "abl-store"}}))
            ok(Lab(world).pulumi("up"))
        stack.init()
        ok(stack.up(timeout=400))
        (id,) = world.rentals()
        (spec,) = (base / "platform").rglob("data/sweep/spec.json")
        yield Left(world, id, spec.parent)


# A platform whose boxes hold a key


@pytest.mark.proof  # on a rented box: test_start_lease.py; its runner: tests/onbox/test_lease.py
@pytest.mark.parametrize("platform", OTHER_THAN_THE_LOOP)
def test_a_laptop_that_is_gone_for_a_month(platform: str, tmp_path: Path) -> None:
    """It stops itself once its cell is sealed and the lease is over; the journal has that before the platform does."""
    with left(platform, tmp_path) as box:
        shorten(box.folder)
        box.until(box.sealed, "its cell is sealed")
        need = box.now
        box.until(lambda: not box.computes(), "it stops itself")
        assert journal(box.folder, "box-off")[0]["time"] <= _iso(box.books.acts[-1].at)
        box.assert_stopped_in_time(need)
        assert box.sealed()


@pytest.mark.proof
@pytest.mark.parametrize("platform", PLATFORMS)
def test_what_goes_wrong_is_said_and_it_stops_when_it_can(platform: str, tmp_path: Path) -> None:
    """The key is refused, calls come too often, a stop is answered and not done, and the last answer is lost."""
    with left(platform, tmp_path) as box:
        faults = box.world.sim.faults
        refused = faults.add("auth", box=box.id, times=None)  # its own key asks for its stop alone, in any way
        shorten(box.folder)
        box.until(lambda: box.failed("401"), "the key is refused")
        need = box.now
        said = box.status()
        assert "should have stopped itself" in said, said
        assert "401" in said, said
        assert box.computes()
        for kind, words in (("too_many", "429"), ("stop_ignored", "still runs")):
            faults.add(kind, box=box.id, times=None)
            if kind == "too_many":
                faults.drop(refused.kind)
            else:
                faults.drop("too_many")
            box.until(lambda words=words: box.failed(words), words)  # type: ignore[misc]
        faults.add("lost_answer", box=box.id)
        faults.drop("stop_ignored")
        box.until(lambda: not box.computes(), "it stops itself")
        box.assert_stopped_in_time(need)
        assert [act.done for act in box.books.acts if act.by == OWN][-1]
        assert box.sealed()


@pytest.mark.proof
@pytest.mark.parametrize("platform", PLATFORMS)
def test_cut_off_it_tries_until_the_network_is_back(platform: str, tmp_path: Path) -> None:
    """A person who looks meanwhile hears that it can't be reached, and that it bills."""
    with left(platform, tmp_path) as box:
        box.until(box.sealed, "its cell is sealed")
        box.world.sim.act("isolate", {"id": box.id})
        shorten(box.folder)
        box.until(lambda: journal(box.folder, "box-off-failed"), "a try has failed")
        (first, *_) = journal(box.folder, "box-off-failed")
        assert "timed out" in first["reason"], first
        assert box.computes()
        said = box.status()
        assert box.world.stack.sweepctl("status", "--json", timeout=180).json()["bills"] == "yes"
        assert "unreachable" in said or "does not answer" in said or "can't be reached" in said, said
        need = box.now
        box.world.sim.act("isolate", {"id": box.id, "isolated": False})
        box.until(lambda: not box.computes(), "it stops itself")
        box.assert_stopped_in_time(need)


@pytest.mark.proof
@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_box_without_a_key_says_so_and_bills_on(platform: str, tmp_path: Path) -> None:
    with left(platform, tmp_path, making=("no_key",)) as box:
        shorten(box.folder)
        box.until(lambda: journal(box.folder, "box-off-failed"), "a try has failed")
        (first, *_) = journal(box.folder, "box-off-failed")
        variable = {"runpod": "RUNPOD_API_KEY", "vastai": "CONTAINER_API_KEY"}[platform]
        assert variable in first["reason"], first
        said = box.status()
        assert "should have stopped itself" in said, said
        assert variable in said, said
        assert "$" in said, said
        assert box.computes()


@pytest.mark.proof
def test_where_rest_v2_takes_no_keys_of_pods(tmp_path: Path) -> None:
    """As is said of it. Then it stops by what the vendor's own tool in a pod sends."""
    with left("runpod", tmp_path) as box:
        box.world.sim.faults.add("no_pod_keys", box=box.id, times=None)
        shorten(box.folder)
        box.until(box.sealed, "its cell is sealed")
        need = box.now
        box.until(lambda: not box.computes(), "it stops itself by the second request")
        box.assert_stopped_in_time(need)
        assert box.sealed()


@pytest.mark.proof
@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_queue_that_hangs_ends_and_its_checkpoint_stays(platform: str, tmp_path: Path) -> None:
    hangs = "import pathlib, sys, time\n"
    hangs += "out = pathlib.Path(sys.argv[sys.argv.index('--out') + 1])\n"
    hangs += "(out / 'half-done.txt').write_text('so far')\nprint('so far', flush=True)\ntime.sleep(10**6)\n"
    with left(platform, tmp_path, train=hangs) as box:

        def made() -> list[Path]:
            return list((tmp_path / "platform").rglob("half-done.txt"))

        box.until(made, "it hangs")
        need = box.now
        shorten(box.folder, stall_seconds=2.0)
        box.until(lambda: not box.computes(), "it stops itself")
        assert journal(box.folder, "runner-stopped")[-1]["why"] == "lease"
        box.assert_stopped_in_time(need)
        assert [path.read_text() for path in made()] == ["so far"], "nothing unsealed is lost"


@pytest.mark.proof
def test_a_cell_that_works_is_not_cut_short(tmp_path: Path) -> None:
    """The lease is over long before the cell is sealed."""
    works = "import time\nends = time.monotonic() + 25\nwhile time.monotonic() < ends:\n    pass\n"
    with left("vastai", tmp_path, train=works) as box:
        shorten(box.folder)
        box.until(lambda: not box.computes(), "it stops itself")
        events = [entry["event"] for entry in journal(box.folder, "cell-sealed", "box-off", "cell-started")]
        assert events[:3] == ["cell-started", "cell-sealed", "box-off"]


@pytest.mark.proof
def test_where_a_stop_would_lose_a_cell_the_box_stays_and_tells(tmp_path: Path) -> None:
    """On RunPod a stop wipes the container disk, where data lies beside a network volume: a cell may be sealed there
    that is not on the volume."""
    with left("runpod", tmp_path, volume=True) as box:
        shorten(box.folder)
        box.until(lambda: journal(box.folder, "lease-over") or not box.computes(), "it tells, or stops")
        if box.computes():
            (told,) = journal(box.folder, "lease-over")
            said = box.status()
            assert "should have stopped itself" in said, said
            assert told["why"] in said, said
            assert {act.by for act in box.books.acts} == {OWNER}
        box.world.sim.hosts.machine(box.id)  # from here on all is wiped that a stop wipes
        manifests = list((tmp_path / "platform" / "volumes").rglob("manifest.json"))
        assert len(manifests) == 1, "sealed on what outlives the box"
        assert box.sealed(), "its journal is nowhere else"


@pytest.mark.proof
@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_stopped_box_goes_on_where_it_was(platform: str, tmp_path: Path) -> None:
    """A day later: a new cell starts it again, the sealed one is still there, and all of it is pulled."""
    with left(platform, tmp_path) as box:
        stack = box.world.stack
        shorten(box.folder)
        box.until(box.sealed, "its cell is sealed")
        box.until(lambda: not box.computes(), "it stops itself")
        box.world.sim.clock.advance(24 * HOUR)  # a contract at vast.ai may be over after a month
        stack.edit_config(lambda sweep: sweep["cells"].update(grid={"lr": [0.1], "seed": [0, 1]}))
        ok(stack.up(timeout=400))
        assert box.world.rentals() == {box.id}
        ok(stack.sweepctl("wait", "done", timeout=400))
        ok(stack.sweepctl("pull", timeout=180))
        assert stack.verify()["verified"] == 2


@pytest.mark.proof
@pytest.mark.parametrize("platform", PLATFORMS)
def test_started_in_the_console_it_stops_again(platform: str, tmp_path: Path) -> None:
    """No command of ours looks at it, and nothing of ours has started it."""
    with left(platform, tmp_path) as box:
        shorten(box.folder)
        box.until(box.sealed, "its cell is sealed")
        box.until(lambda: not box.computes(), "it stops itself")
        box.world.sim.clock.advance(24 * HOUR)
        if platform == "vastai":
            box.world.sim.act("set", {"start_reads": 0, "boot_reads": 0})
        method, route = START[platform].split(" ")
        body = {"runpod": {"action": "start"}, "vastai": {"state": "running"}}[platform]
        headers = {"Authorization": f"Bearer {box.world.key}", "User-Agent": "console"}
        url = box.world.server.url + route.replace("{id}", box.id)
        assert httpx.request(method, url, json=body, headers=headers, timeout=120).is_success
        need = box.now
        assert box.computes()
        box.until(lambda: not box.computes(), "it stops itself again")
        assert [act.what for act in box.books.acts if act.by == OWN] == ["stop", "stop"]
        box.assert_stopped_in_time(need)


@pytest.mark.proof
def test_cells_are_not_given_the_key_that_sessions_have(tmp_path: Path) -> None:
    """In an image that exports it to its sessions. A file with the key on the box fails the test: `rented`."""
    tells = "import os\nprint(sorted(os.environ.items()), flush=True)\n"
    with rented("vastai", tmp_path, stack_of("vastai")) as world:
        world.sim.act("session_env", {})
        without_internet(world.stack)
        world.stack.edit_config(lambda sweep: sweep["cells"].update(grid={"lr": [0.1], "seed": [0]}))
        job = world.stack.checkout / "examples/digits/train.py"
        job.write_text(job.read_text().replace("import numpy as np\n", f"import numpy as np\n{tells}", 1))
        world.stack.init()
        ok(world.stack.up(timeout=400))
        ok(world.stack.sweepctl("wait", "done", timeout=400))
        (log,) = (tmp_path / "platform").rglob("cells/*/*/log.txt")
        assert "PATH" in log.read_text()
        assert "CONTAINER_API_KEY" not in log.read_text()


# Hosts, which hold no key


@pytest.mark.proof  # what it tells: tests/onbox/test_lease.py
def test_a_host_without_a_way_tells_and_a_look_renews(small: HostStack) -> None:
    """It bills on, and says so in the journal and in `status`; what it sealed stays."""
    small.edit_config(lambda sweep: sweep.update(lease="10m", when_done="keep", budget={"usd": 5, "hours": 6}))
    small.edit_config(lambda sweep: sweep.update(overrides={"generic-ssh": {"price_per_hour": 0.5}}))
    ok(small.up())
    folder = small.box_dir("box-0") / "data" / "sweep"
    shorten(folder)
    small.wait_done()
    wait(lambda: journal(folder, "lease-over"), lambda: f"never tells: {journal(folder)[-3:]}")
    (told,) = journal(folder, "lease-over")
    looked = (folder / "looked").stat().st_mtime_ns
    said = small.sweepctl("status").text
    assert "should have stopped itself" in said, said
    assert told["why"] in said, said
    assert (folder / "looked").stat().st_mtime_ns > looked
    assert small.sealed() == set(small.cells)


@pytest.mark.proof
@pytest.mark.parametrize("jump", [400 * 24 * HOUR, -400 * 24 * HOUR])
def test_the_wall_clock_jumps(instance: tuple[Stack, Host, Path], tmp_path: Path, jump: float) -> None:
    """On a host with a stop of its own: a jump ends no lease, and keeps none alive."""
    stack, host, record = instance
    stack.edit_config(lambda sweep: sweep.update(lease="10m", when_done="keep"))
    stack.init()
    ok(stack.up(timeout=300))
    (native_id,) = boxes(host)
    folder = data(host) / "sweepstack/boxes" / native_id / "data/sweep"
    wait(lambda: len(journal(folder, "cell-sealed")) == 2, lambda: "never sealed")
    moment = time.time() + jump
    os.utime(folder / "looked", (moment, moment))  # as a look, or the file system's clock, would leave it
    time.sleep(2 * LEASE)
    assert not record.exists(), "a jump ends no lease"
    shorten(folder)
    wait(record.exists, lambda: f"never off: {journal(folder)[-3:]}")
    assert record.read_text().startswith("shutdown")
    assert journal(folder, "box-off")[0]["why"] == "lease"


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat()
