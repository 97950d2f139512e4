"""On a client of the NFS server: one worker after the other claims cells of /mnt/box/data, each killed after a while.

    python claiming_guest.py SEED CELLS MEAN_SECONDS PORT MACHINE

Says `killed NAME` for each on the console, and ends when one ends by itself: then all cells are sealed. PORT: where the
witness listens on the host. MACHINE: begins the workers' names, another one after each start of the machine.
"""

from __future__ import annotations

import contextlib
import os
import random
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


def worker(name: str, cells: int, port: int) -> None:
    with socket.create_connection(("10.0.2.2", port)) as witness, witness.makefile("rwb") as said:

        @contextlib.contextmanager
        def held(number: int) -> Iterator[None]:
            said.write(b"%s has %d\n" % (name.encode("ascii"), number))
            said.flush()
            said.readline()
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
        pid = os.fork()
        if not pid:
            try:
                worker(name, cells, port)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
        ends = time.monotonic() + chance.expovariate(1 / mean)
        while time.monotonic() < ends:
            done, code = os.waitpid(pid, os.WNOHANG)
            if done:
                return int(code != 0)
            time.sleep(0.01)
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
        if code != signal.SIGKILL:
            return int(code != 0)
        print(f"killed {name}", flush=True)


if __name__ == "__main__":
    failed = main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    if not failed:
        hand_in(int(sys.argv[4]))
    sys.exit(failed)
