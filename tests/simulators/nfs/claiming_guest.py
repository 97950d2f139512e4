"""On a client of the NFS server: one worker after the other claims cells, each killed after some claims.

    python claiming_guest.py SEED CELLS MEAN PORT MACHINE

MEAN: so many claims a worker makes on average before it is killed. Says `killed NAME` for each on the console, and ends
when one ends by itself: then all cells of /mnt/box/data are sealed. PORT: where the witness listens on the host.
MACHINE: begins the workers' names, another one after each start of the machine.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.onbox.claiming import work

HOME = Path("/mnt/box/data")


def worker(name: str, cells: int, port: int, claimed: int) -> None:
    with socket.create_connection(("10.0.2.2", port)) as witness, witness.makefile("rwb") as said:

        @contextlib.contextmanager
        def held(number: int) -> Iterator[None]:
            said.write(b"%s has %d\n" % (name.encode("ascii"), number))
            said.flush()
            said.readline()
            os.write(claimed, b".")
            yield
            said.write(b"%s ends %d\n" % (name.encode("ascii"), number))
            said.flush()

        work(HOME, name, cells, held)


def hand_in(port: int) -> None:
    journal = (HOME / "journal.jsonl").read_bytes()
    with socket.create_connection(("10.0.2.2", port)) as witness:
        witness.sendall(b"all read %d\n" % len(journal) + journal)


def main(seed: int, cells: int, mean: float, port: int, machine: str) -> int:
    chance = random.Random(f"{seed} {machine}")
    HOME.mkdir(parents=True, exist_ok=True)
    count = 0
    while True:
        count += 1
        name = f"{machine}.{count}"
        seen, claimed = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                worker(name, cells, port, claimed)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
        os.close(claimed)
        early = chance.random() < 0.2  # before or after its first claim
        for _ in range(1 if early else 1 + int(chance.expovariate(1 / mean))):
            if early and not select.select([seen], [], [], chance.uniform(0.0, 5.0))[0]:
                break
            if not os.read(seen, 1):  # it has ended
                _, code = os.waitpid(pid, 0)
                return int(code != 0)
        time.sleep(chance.random() * 0.2)
        kind = chance.random()
        if kind < 0.5:  # halted in the middle of something: some go on, some are killed
            os.kill(pid, signal.SIGSTOP)
            time.sleep(chance.random() * 0.5)
            print(f"halted {name}", flush=True)
            if kind < 0.2:
                os.kill(pid, signal.SIGCONT)
                time.sleep(chance.random() * 0.5)
        os.kill(pid, signal.SIGKILL)
        _, code = os.waitpid(pid, 0)
        os.close(seen)
        if code != signal.SIGKILL:
            return int(code != 0)
        print(f"killed {name}", flush=True)


if __name__ == "__main__":
    failed = main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    if not failed:
        hand_in(int(sys.argv[4]))
    sys.exit(failed)
