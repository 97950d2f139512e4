"""On two clients of the NFS server: `a` gives the lock back within the second in which it took it, `b` waits for it.

    python lock_guest.py MACHINE ROUNDS

`a` waits for the beginning of a second of the server's clock, which is not its own. `b` says `had it` or `had it not`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from sweepstack.onbox.common.locks import LinkLock, state_of

FOLDER = Path("/mnt/lock")
PATIENCE = 10.0


def wait_for_a_second() -> None:
    """Until the server's clock goes from one second to the next, by the times of a file."""
    clock = Path("/mnt/clock")
    clock.touch()
    began = int(clock.stat().st_ctime)
    while int(clock.stat().st_ctime) == began:
        clock.touch()


def main(machine: str, rounds: int) -> None:
    lock = LinkLock(FOLDER, {"worker": machine}, lambda _: False)
    for _ in range(rounds):
        if machine == "a":
            wait_for_a_second()
            assert lock.take(5.0)
            time.sleep(0.4)
            lock.give_back()
            print("gave back", flush=True)
            time.sleep(PATIENCE + 5.0)
        else:
            while state_of(FOLDER).free:
                time.sleep(0.01)
            print("had it" if lock.take(PATIENCE) else "had it not", flush=True)
            time.sleep(2.0)  # `a` changes nothing meanwhile
            lock.give_back()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
