"""The process of a cell over several nodes: starts, watches and ends its part on each.

It ends when all parts have ended well, or with the first that fails: then all others are ended, too. A node of which
nothing is heard for SILENT_SECONDS counts as lost; its own keeper ends what runs there.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.canonical import write_json_atomically
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.nodes import Allocation
from sweepstack.onbox.common.processes import BOX_ID_VARIABLE
from sweepstack.onbox.runner.cell_processes import end_cells
from sweepstack.onbox.runner.ending import last_exception
from sweepstack.onbox.runner.nodes import LOST_UNTIL, REMAINS

from .command import on_each_node
from .copying import Mirror
from .keeper import BEAT_SECONDS, KILL_SECONDS, SILENT_SECONDS
from .peers import Carrier, last_words, peer_of

LOOK_SECONDS, SETTLE_SECONDS = 0.2, 10.0
RANK, SIGNALLED = re.compile(r"^\[rank[0-9]+\]: "), "Signal "
"""What torch prints before a line of a rank; what torchrun says of one that a signal ended."""
LOST = "sweepstack: node {number} ({name}) is lost: {why}"
UNAVAILABLE = 69
RENDEZVOUS_SECONDS = 300
MOST_LINE = 4096
CARRIED = ("PATH", "HOME", "LANG", "SSH_AUTH_SOCK", BOX_ID_VARIABLE)
"""What a connection has of the cell's variables. It is none of the cell's processes: it lasts until they have ended."""


def settings(nodes: Sequence[Mapping[str, Any]], number: int) -> dict[str, str]:
    """The variables of the ranks on a node; what the job sets itself comes before them."""
    name = str(nodes[number]["interface"][0])
    without_infiniband = not all(node["infiniband"] for node in nodes)
    return {
        "NCCL_SOCKET_IFNAME": f"={name}",  # the equals sign: this one, and not all whose names begin so
        "GLOO_SOCKET_IFNAME": name,
        "TP_SOCKET_IFNAME": name,
        **({"NCCL_IB_DISABLE": "1"} if without_infiniband else {}),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "600",
        "NCCL_DEBUG": "WARN",
        "SWEEPSTACK_NODE": str(number),
    }


def options(nodes: Sequence[Mapping[str, Any]], number: int, port: int) -> str:
    """torchrun's options on a node. The ranks' order is fixed: rank 0 is on the first node, where the seal is made."""
    return (
        f"--nnodes={len(nodes)} --node-rank={number} --rdzv-backend=static --rdzv-conf=timeout={RENDEZVOUS_SECONDS} "
        f"--master-addr={nodes[0]['interface'][1]} --master-port={port} --local-addr={nodes[number]['interface'][1]}"
    )


class PeerPart:
    """What runs on one peer, seen from the first node. `code`: how it ended, None while it runs. `last`: the last line
    that it printed; `told`: the last one that says what went wrong."""

    def __init__(self, number: int, peer: Carrier, argv: Sequence[str], order: Mapping[str, Any]) -> None:
        self.number, self.name = number, peer.name
        self.code: int | None = None
        self.why = self.last = self.told = ""
        self.left: list[str] = []
        self.running: list[str] = []
        self.doubts: list[str] = []
        self.heard = self.told_at = time.monotonic()
        env = {name: os.environ[name] for name in CARRIED if name in os.environ}
        self._process = subprocess.Popen(
            peer.command(argv), env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.tell(json.dumps(order))
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._control, self._output)]
        for thread in self._threads:
            thread.start()

    def tell(self, word: str) -> None:
        """Sends a line to its keeper. One that is lost hears nothing more, so that it ends by itself."""
        if self.why:
            return
        self.told_at = time.monotonic()
        with contextlib.suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.write(word.encode() + b"\n")
            self._process.stdin.flush()

    def look(self) -> None:
        """Notes that it is lost, where its connection broke or nothing is heard of it."""
        if self.code is not None or self.why:
            return
        if self._process.poll() is not None:
            for thread in self._threads:
                thread.join(KILL_SECONDS)
            if self.code is None and not self.why:
                self.why = f"its connection broke off; {self.last or 'nothing was said'}"
        elif time.monotonic() - self.heard > SILENT_SECONDS:
            self.why = f"nothing is heard of it for {SILENT_SECONDS:.0f} s"

    @property
    def over(self) -> bool:
        return self.code is not None or bool(self.why)

    def close(self) -> None:
        """Ends the connection: what its keeper has not ended yet, it ends now."""
        with contextlib.suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_SECONDS)
        self._process.kill()

    def _control(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):
                said = json.loads(line)
                self.heard = time.monotonic()
                if "refused" in said:
                    self.last, self.code = str(said["refused"]), UNAVAILABLE
                elif "ended" in said:
                    self.running, self.doubts = list(said["running"]), list(said["doubts"])
                    self.left, self.code = list(said["left"]), int(said["ended"])

    def _output(self) -> None:
        """Passes on what it prints, whole lines, each with the node's name."""
        assert self._process.stderr is not None
        while line := self._process.stderr.readline(MOST_LINE):
            words = RANK.sub("", last_words(line))
            self.last = words if re.search("[a-z]", words) else self.last  # not the lines of torchrun's table
            self.told = words if last_exception(words) or SIGNALLED in words else self.told
            end = b"" if line.endswith(b"\n") else b"\n"
            with contextlib.suppress(OSError):
                os.write(2, f"[{self.name}] ".encode() + line + end)


class Launch:
    """One attempt. `order`: see `cells`."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self.order, self.nodes = order, list(order["nodes"])
        self.asked = 0  # the signal that asked for the end
        self.parts: list[PeerPart] = []

    def run(self) -> int:
        """Returns the exit code."""
        for one in (signal.SIGTERM, signal.SIGINT):
            signal.signal(one, self._on_signal)
        allocation = Allocation.of(self.order["allocation"]) if self.order.get("allocation") else None
        peers = [peer_of(node["name"], allocation) for node in self.nodes[1:]]
        try:
            self._bring_checkpoint(peers)
        except SweepstackError as error:
            _say(f"sweepstack: a node is lost: {error}")
            return UNAVAILABLE
        if self.asked:
            return 128 + self.asked
        port = _free_port(self.nodes[0]["interface"][1])
        runner = str(Path(self.order["runner"]) / "nodes.py")
        mark = f"{BOX_ID_VARIABLE}={self.order['native_id']}"
        for number, peer in enumerate(peers, 1):
            keep = ["env", mark, self.order["python"], "-I", "-S", runner, "keep"]
            self.parts.append(PeerPart(number, peer, keep, self._part_order(number, port)))
        env = {**os.environ, **self._missing(0)}
        own = subprocess.Popen(["/bin/sh", "-c", self._command(0, port)], env=env, stdin=subprocess.DEVNULL)
        return self._end(own, *self._watch(own))

    def _on_signal(self, number: int, _frame: Any) -> None:
        self.asked = number

    def _bring_checkpoint(self, peers: Sequence[Carrier]) -> None:
        """What the cell goes on from, to the peers that don't see its folder: all ranks read it."""
        lacking = [peer for peer, node in zip(peers, self.nodes[1:]) if not node["durable"]]
        box, checkpoint = Path(self.order["box"]), Path(self.order["checkpoint"])
        mirror = Mirror(box, self.order["native_id"], Path(self.order["durable"]), self.order["python"])
        with mirror.marked() as nonce:
            for peer in lacking:
                mirror.bring(peer, nonce, [str(checkpoint.relative_to(box))])

    def _missing(self, number: int) -> dict[str, str]:
        return {name: value for name, value in settings(self.nodes, number).items() if name not in os.environ}

    def _command(self, number: int, port: int) -> str:
        return on_each_node(self.order["run"], options(self.nodes, number, port), self.order["processes"])

    def _part_order(self, number: int, port: int) -> dict[str, Any]:
        env = {**os.environ, **self._missing(number)}
        env.pop("HOME", None)
        kept = {name: self.order[name] for name in ("box", "native_id", "cell", "code", "home", "out", "grace")}
        folders = [self.order["out"], self.order["scratch"]]
        argv = ["/bin/sh", "-c", self._command(number, port)]
        order = {**kept, "argv": argv, "env": env, "folders": folders, "shared": self.nodes[number]["shared"]}
        return {**order, "worker": self.order.get("worker", ""), "allocated": bool(self.order.get("allocation"))}

    def _watch(self, own: subprocess.Popen[bytes]) -> tuple[int, str]:
        """Until all ended well, one failed, or a signal came. Returns the exit code, and what failed."""
        beat = 0.0
        while True:
            if time.monotonic() - beat >= BEAT_SECONDS:
                beat = time.monotonic()
                for part in self.parts:
                    part.tell("beat")
            for part in self.parts:
                part.look()
            code = own.poll()
            if self.asked:
                return 128 + self.asked, ""
            lost = next((part for part in self.parts if part.why), None)
            if lost is not None:
                return UNAVAILABLE, LOST.format(number=lost.number, name=lost.name, why=lost.why)
            if code or any(part.code for part in self.parts):
                return self._failed(own)
            if code == 0 and all(part.code == 0 for part in self.parts):
                return 0, ""
            time.sleep(LOOK_SECONDS)

    def _failed(self, own: subprocess.Popen[bytes]) -> tuple[int, str]:
        """As `_watch`. A rank that fails takes others along, on any node, and which one ends first says little: so all
        that end within SETTLE_SECONDS are named."""
        ends = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < ends and not self.asked:
            if own.poll() is not None and all(part.over for part in self.parts):
                break
            time.sleep(LOOK_SECONDS)
            for part in self.parts:
                part.tell("beat")
                part.look()
        failed = [part for part in self.parts if part.code]
        words = [f"node {one.number} ({one.name}): {one.told or one.last or 'it said nothing'}" for one in failed]
        words = (["node 0 (the first)"] if own.poll() else []) + words
        codes = [code for code in (own.poll(), *(part.code for part in failed)) if code]
        return _code(codes[0]), f"sweepstack: failed: {'; '.join(words)}"

    def _end(self, own: subprocess.Popen[bytes], code: int, why: str) -> int:
        """Ends what still runs, on every node; waits for it, and says why."""
        ends = time.monotonic() + float(self.order["grace"])
        if own.poll() is None and not self.asked:  # a signal to this process group has reached it already
            own.terminate()
        for part in self.parts:
            part.tell("term")
        while time.monotonic() < ends and not (own.poll() is not None and all(part.over for part in self.parts)):
            time.sleep(LOOK_SECONDS)
            for part in self.parts:
                part.tell("beat")
                part.look()
        for part in self.parts:
            part.tell("kill")
        if self.order.get("allocation"):
            self._outlive_lost()
        if own.poll() is None:
            own.kill()
        own.wait()
        left = end_cells(self.order["native_id"], {self.order["cell"]}, {}, 0.0) if code else []
        ends = time.monotonic() + 2 * KILL_SECONDS
        while time.monotonic() < ends and not all(part.over for part in self.parts):
            time.sleep(LOOK_SECONDS)
            for part in self.parts:
                part.look()
        for part in self.parts:
            part.close()
            if part.left and not code:
                what = ", ".join(part.left[:3])
                _say(
                    f"sweepstack: node {part.number} ({part.name}) wrote {what} to {{out}} there, which is not kept: "
                    "let rank 0 write the results, or give all nodes one shared folder"
                )
        self._note_remains()
        if left:
            _say(f"sweepstack: processes on this node can't be ended: {left}")
        if why:
            _say(why)
        return code

    def _note_remains(self) -> None:
        """For the runner: what the parts on peers left running, each with its node's name."""
        running = [f"{part.name}: {one}" for part in self.parts for one in part.running]
        doubts = [f"{part.name}: {one}" for part in self.parts for one in part.doubts]
        if running:
            note = Path(self.order["out"]).with_name(REMAINS)
            write_json_atomically(note, {"running": running, "doubts": doubts})

    def _outlive_lost(self) -> None:
        """Waits until the keepers of lost nodes have ended what runs there: in another allocation the next attempt may
        begin as soon as this one has ended, and would not meet them. Told to end, it can't wait: then the file says so.
        """
        lost = [part.told_at for part in self.parts if part.why]
        if not lost:
            return
        ends = max(lost) + SILENT_SECONDS + 2 * KILL_SECONDS
        note = Path(self.order["out"]).with_name(LOST_UNTIL)
        note.write_text(str(time.time() + ends - time.monotonic()))
        while not self.asked and time.monotonic() < ends:
            time.sleep(LOOK_SECONDS)


def _code(code: int) -> int:
    return 128 - code if code < 0 else code


def _free_port(address: str) -> int:
    with socket.socket() as handle:
        handle.bind((address, 0))
        return int(handle.getsockname()[1])


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, text.encode() + b"\n")


def argv(python: str, runner: Path, order: Path) -> list[str]:
    """The command of the cell's process."""
    return [python, "-I", "-S", str(runner / "nodes.py"), "launch", str(order)]


def main(order: str) -> int:
    """`order`: a JSON file."""
    sys.stdout.flush()
    return Launch(json.loads(Path(order).read_text())).run()
