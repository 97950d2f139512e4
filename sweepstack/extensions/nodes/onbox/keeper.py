"""Starts a cell's part on a peer, and ends it with the first node, whatever happens there.

On stdin the order, one JSON line, then a line now and then: `beat`, `term` (save and end) or `kill`. When stdin closes,
or says nothing for SILENT_SECONDS, the first node is gone, and all of the cell is ended here. On stdout JSON lines:
{"beat": 1}, {"refused": why}, {"ended": code, "left": files, "running": what lived on, "doubts": sentences}. What the
cell prints goes to stderr.

One keeper at a time: it holds the box's lock here, and ends what an earlier one left before it starts anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.locks import take
from sweepstack.onbox.common.processes import BOX_ID_VARIABLE, signal_group, start_of
from sweepstack.onbox.runner.cell_processes import end_cells
from sweepstack.onbox.runner.code import CodeCheck
from sweepstack.onbox.runner.remains import Children, Remains, let_go

from .receive import MARK, clear

BEAT_SECONDS, SILENT_SECONDS = 2.0, 30.0
LOCK_SECONDS, KILL_SECONDS = 60.0, 5.0
LOCK = "keeper.lock"
MOST_LEFT = 20
DEVICES = "CUDA_VISIBLE_DEVICES"


class Keeper:
    """One part of one attempt. `order`: box, native_id, cell, code, home, argv, env, folders, out, shared, grace;
    `worker`: whose it is, where several share the box; `allocated`: this node belongs to an allocation of that one."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self.order = order
        self.grace, self.worker = float(order["grace"]), str(order.get("worker") or "")
        self.heard, self.gone, self.unread = time.monotonic(), False, b""
        self.kill_at: float | None = None
        self.spoken = 0.0
        os.set_blocking(0, False)

    def run(self) -> None:
        """Blocks until the part has ended and nothing of it is left."""
        box, native_id = Path(self.order["box"]), str(self.order["native_id"])
        lock = os.open(self._lock(box), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        # an earlier attempt's: it lets go of the lock then
        left = end_cells(native_id, None, {}, KILL_SECONDS, self.worker)
        if left or not take(lock, LOCK_SECONDS, lambda: self._hear() == "gone"):
            self._say({"refused": f"processes of an earlier attempt can't be ended there: {left or 'its keeper'}"})
            return
        problem = CodeCheck(Path(self.order["home"])).problem(self.order["code"])
        if problem is not None:
            self._say({"refused": problem.reason})
            return
        if (box / MARK).exists():  # else the box's folder is the first node's own
            for kept in (box / "scratch", Path(self.order["home"]) / "cells"):
                clear(str(kept))  # of earlier attempts, and on no account the only copy of anything
        for folder in self.order["folders"]:
            os.makedirs(folder, exist_ok=True)
        env = {**self.order["env"], "HOME": os.path.expanduser("~"), BOX_ID_VARIABLE: native_id}
        if self.order.get("allocated") and DEVICES in os.environ:  # which cards are its own differs from node to node
            env[DEVICES] = os.environ[DEVICES]
        children = Children(native_id)
        process = subprocess.Popen(
            self.order["argv"],
            cwd=Path(self.order["home"]) / "code" / self.order["code"].rpartition(":")[2],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=2,
            stderr=2,
            start_new_session=True,
        )
        started = start_of(process.pid)
        while (code := process.poll()) is None:
            word = self._hear(0.2)
            if word == "kill" or (self.kill_at is not None and time.monotonic() >= self.kill_at):
                break
            if word in ("term", "gone") and self.kill_at is None:
                self.kill_at = time.monotonic() + (self.grace if word == "term" else KILL_SECONDS)
                signal_group(process.pid, signal.SIGTERM)
        remains = self._let_go(children, process.pid) if code == 0 else Remains()
        left = end_cells(native_id, {self.order["cell"]}, {process.pid: started}, 0.0, self.worker)
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(KILL_SECONDS)
        ended = {"ended": -9 if code is None else code, "survive": left, "left": self._written()}
        self._say({**ended, "running": remains.left, "doubts": remains.doubts})

    def _let_go(self, children: Children, leader: int) -> Remains:
        """Waits for what still writes results that the first node sees. What it writes elsewhere is not kept."""
        out = Path(self.order["out"])
        words = ("kill", "term", "gone")
        return let_go(
            lambda: children.of(self.order["cell"], leader, out),
            out,
            self.grace,
            lambda: not self.order["shared"] or self._hear() in words,
        )

    def _lock(self, box: Path) -> Path:
        """Where several workers share the box's folder, each has a keeper on each node: a lock on this node alone."""
        if not self.order.get("allocated"):
            return box / LOCK
        return Path(tempfile.gettempdir()) / f"sweepstack-{os.getuid()}-{self.order['native_id']}-{self.worker}.lock"

    def _written(self) -> list[str]:
        """What the cell wrote into its results' folder here: of a folder that is not shared, it is on no other node."""
        out = Path(self.order["out"])
        if self.order["shared"] or not out.is_dir():
            return []
        return sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())[:MOST_LEFT]

    def _hear(self, seconds: float = 0.0) -> str:
        """The most urgent word that came: kill, gone (no first node any more), term, or "". Says now and then that this
        keeper is at work."""
        if time.monotonic() - self.spoken >= BEAT_SECONDS:
            self.spoken = time.monotonic()
            self._say({"beat": 1})
        words = set()
        if not self.gone and select.select([0], [], [], seconds)[0]:
            data = os.read(0, 4096)
            self.gone = not data
            *lines, self.unread = (self.unread + data).split(b"\n")
            words = {line.decode("ascii", "replace") for line in lines}
            self.heard = time.monotonic()
        elif self.gone:
            time.sleep(seconds)
        if self.gone or time.monotonic() - self.heard > SILENT_SECONDS:
            self.gone = True
            return "gone"
        return next((word for word in ("kill", "term") if word in words), "")

    def _say(self, value: Mapping[str, Any]) -> None:
        try:
            os.write(1, json.dumps(value).encode() + b"\n")
        except OSError:  # the first node, or the connection, is gone
            self.gone = True


def main() -> int:
    """Takes the order from stdin."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    order = b""
    while not order.endswith(b"\n"):  # unbuffered: what follows the line is for the keeper
        part = os.read(0, 1)
        if not part:
            return 1
        order += part
    Keeper(json.loads(order)).run()
    sys.stdout.flush()
    return 0
