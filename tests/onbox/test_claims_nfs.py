"""Claims over NFS: two machines with kernels of their own mount one folder of a third, and their workers are killed.

The machines are emulated, so a claim takes a fifth of a second. The witness (`tests/simulators/nfs/witness.py`) sees
who has a cell without the journal.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.oldest_python import onbox_python
from tests.onbox.test_claims import judge
from tests.simulators.nfs.machines import Machine, Machines
from tests.simulators.nfs.witness import Witness

SECONDS = 3000.0
CLAIMING, WAITING = (f"tests/simulators/nfs/{name}.py" for name in ("claiming_guest", "lock_guest"))
pytestmark = [pytest.mark.proof, pytest.mark.timeout(SECONDS + 600)]
"""tests/onbox/test_claims.py stays in `make test`: the same on one kernel."""


def play(machines: Machines, seed: int, claims: int, mean: float, crashes: int) -> str:
    """Two clients claim all cells; their workers are killed after `mean` claims, the clients themselves lose their
    power `crashes` times and start anew, and as often the server stands still for seconds. Returns what happened."""
    began, chance, witness = time.monotonic(), random.Random(seed), Witness()
    starts = {"a": 0, "b": 0}

    def start(name: str) -> Machine:
        starts[name] += 1
        more = [str(seed), str(claims), str(mean), str(witness.port), f"{name}{starts[name]}"]
        return machines.start_client(name, "ab".index(name) + 1, [CLAIMING, *more])

    def wait_for(claimed: int) -> None:
        while witness.claims < claimed and any(one.process.poll() is None for one in live.values()):
            assert time.monotonic() - began < SECONDS, f"not in time; seed {seed}\n{consoles()}"
            time.sleep(0.05)

    def consoles() -> str:
        return "\n".join(path.read_text(errors="replace")[-4000:] for path in machines.folder.glob("*.log"))

    live = {name: start(name) for name in starts}
    try:
        for turn in range(1, crashes + 1):
            wait_for(claims * turn // (crashes + 1))
            machines.server.halt(chance.uniform(0.5, 3.0))
            wait_for(witness.claims + chance.randrange(5, 20))
            name = chance.choice("ab")
            if live[name].process.poll() is None:
                live[name].crash()
                live[name] = start(name)
        wait_for(1 << 60)
    finally:
        machines.close()
        witness.close()
    said = consoles()
    assert witness.twice == [], f"seed {seed}\n{said}"
    assert len(witness.journals) == 2, f"a client failed; seed {seed}\n{said}"
    shorter, longer = sorted(witness.journals, key=len)
    assert longer.startswith(shorter), f"the clients read different journals; seed {seed}"
    judge(longer, claims, seed)
    kills = sum(path.read_text(errors="replace").count("killed ") for path in machines.folder.glob("?.log"))
    assert kills > 0
    assert longer.count(b'"event":"worker-ended"') > 0
    return f"{witness.claims} claims, {kills} kills, {crashes} crashes, {time.monotonic() - began:.0f} s"


@pytest.mark.parametrize(
    ("version", "options", "ticks"),
    [("4.2", "", False), ("4.2", "noac", False), ("3", "", False), ("3", "noac", False), ("3", "", True)],
    ids=["4.2", "4.2-noac", "3", "3-noac", "3-times-in-seconds"],
)
def test_claims_over_nfs_under_kill_9(tmp_path: Path, version: str, options: str, ticks: bool) -> None:
    machines = Machines(tmp_path, onbox_python(), version, options, ticks)
    print(play(machines, seed=1, claims=500, mean=12.0, crashes=3))


def test_a_lock_that_is_given_back_is_seen_where_times_are_in_seconds(tmp_path: Path) -> None:
    machines = Machines(tmp_path, onbox_python(), "3", ticks=True)
    try:
        clients = [machines.start_client(name, number, [WAITING, name, "2"]) for number, name in enumerate("ab", 1)]
        for one in clients:
            one.wait_for(lambda said: "ENDED 0" in said, 300.0, "a client")
        assert clients[1].said().count("had it\n") == 2, clients[1].said()
    finally:
        machines.close()
