"""Holds the doors of a worker's other nodes, and runs the worker as long as it has all of them.

    nodes.py lead RECORD COUNT FOLDER NAME ID ADDRESS -- WORDS…         on the first node

It waits until each of the COUNT - 1 others has a door in FOLDER, and holds it. RECORD is written before the worker
begins: which nodes it has, by name and id, so that its end can be proved of each. Where one is told to end, the worker
is, too: its cells save. Where one is lost the worker is killed, and writes nothing down: what its cells left on that
node is not known, and they are free once it is proved that all of its nodes ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.common.nodes import ALLOCATION

from .door import AGAIN, END, JOIN_SECONDS, TOLD, Wire, entered, heard, write_private
from .peers import NODE

LOOK_SECONDS = 0.2


class Lead:
    """One worker. Use it once, from the main thread."""

    def __init__(self, record: Path, count: int, folder: Path, own: tuple[str, str, str], argv: list[str]) -> None:
        self.record, self.count, self.folder, self.argv = record, count, folder, argv
        self.name, self.ident, self.address = own
        self.told = self.left = False
        self.lost = ""
        self.doors: dict[int, tuple[dict[str, Any], Wire]] = {}
        self._ending = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Blocks until the worker has ended. Returns its exit code, or AGAIN."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        code = self._led() if self._gathered() else AGAIN
        again = self.told or self.left or bool(self.lost)
        code = code if code >= 0 else 128 - code
        self._ending.set()
        for _, wire in self.doors.values():
            with contextlib.suppress(OSError):
                wire.send(END + bytes([AGAIN if again else code & 0xFF]))
                wire.socket.close()
        if self.lost:
            sys.stderr.write(f"this worker's node is lost, and the worker was ended: {self.lost}\n")
        return AGAIN if self.left or self.lost else code

    def _on_signal(self, number: int, _frame: Any) -> None:
        self.told = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGTERM)

    def _gathered(self) -> bool:
        """Whether all doors are held, in time. One that is lost meanwhile, or told to end, ends the wait, too."""
        ends = time.monotonic() + JOIN_SECONDS
        while len(self.doors) < self.count - 1:
            if self.told or self.left or self.lost or time.monotonic() > ends:
                return False
            for index in range(1, self.count):
                if index not in self.doors:
                    self._hold(index)
            time.sleep(LOOK_SECONDS)
        return not (self.told or self.left or self.lost)

    def _hold(self, index: int) -> None:
        """Holds the newest door of this number that lets it. Files of ends that were sudden are left behind."""
        with contextlib.suppress(OSError):
            files = sorted(self.folder.glob(f"{index}-*.json"), key=os.path.getmtime, reverse=True)
            for file in files[:3]:
                with contextlib.suppress(Unreachable, OSError, ValueError, KeyError, TypeError):
                    there = dict(json.loads(file.read_bytes()))
                    wire = entered(there, "hold", self.ident)
                    self.doors[index] = (there, wire)
                    threading.Thread(target=self._listen, args=(str(there["name"]), wire), daemon=True).start()
                    return

    def _listen(self, name: str, wire: Wire) -> None:
        try:
            for word in heard(wire):
                if self._ending.is_set():
                    return
                if word == TOLD and not self.left:
                    self.left = True
                    if self._process is not None:
                        os.kill(self._process.pid, signal.SIGTERM)
        except (OSError, EOFError) as error:
            if not self._ending.is_set():
                self.lost = self.lost or f"{name}: {error}"

    def _led(self) -> int:
        there = [self.doors[index][0] for index in sorted(self.doors)]
        nodes = {str(one["name"]): one for one in there}
        write_private(self.record, {"holder": self.ident, "nodes": nodes})
        program = os.path.abspath(sys.argv[0])
        start = [sys.executable, "-I", "-S", program, "enter", str(self.record), NODE]
        known = {self.name: self.address, **{name: str(one["address"]) for name, one in nodes.items()}}
        env = {**os.environ, ALLOCATION: json.dumps({"nodes": known, "start": start})}
        self._process = process = subprocess.Popen(self.argv, env=env, stdin=subprocess.DEVNULL)
        if self.told or self.left:
            process.terminate()
        while process.poll() is None:
            if self.lost:
                process.kill()
            time.sleep(LOOK_SECONDS)
        return process.returncode


def main(*words: str) -> int:
    """See the module."""
    record, count, folder, name, ident, address, _, *argv = words
    return Lead(Path(record), int(count), Path(folder), (name, ident, address), argv).run()
