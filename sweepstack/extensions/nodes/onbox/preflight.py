"""Brings the peers what they need, and looks whether the nodes of a cell fit together.

Runs before the first cell, on the first node, in a process of its own. All problems are in one message, each with its
node and its fix.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from sweepstack.onbox.common.canonical import hex_of, write_json_atomically
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.nodes import Allocation

from . import facts, network, release
from .copying import Mirror, There
from .network import NOT_A_WAY, Interface
from .peers import Carrier, peer_of

NETWORK = Path(network.__file__)
CLOCK_SECONDS = 10.0
ASK_SECONDS = 300.0
SEEN_SECONDS, END_SECONDS = 60, 5.0
WORDS = ("sweepstack_checkpoint", "SWEEPSTACK_CHECKPOINT_DIR")
T = TypeVar("T")


def restores(code: Path, run: str, env: Mapping[str, str], said: bool) -> bool:
    """Whether a job that is started again goes on from its checkpoint, as far as its text shows: it uses the checkpoint
    helper, its folder, or `{checkpoints}`; or a person `said` so."""
    if said or any("{checkpoints}" in text for text in (run, *env.values())):
        return True
    for path in code.rglob("*.py"):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if any(word in text for word in WORDS):
            return True
    return False


def main(request: str) -> int:
    """`request`: a JSON file, see `cells`. Writes its result into the file that it names: {"problems": […]} or
    {"nodes": […]}. Always 0."""
    asked = json.loads(Path(request).read_text())
    try:
        result = Preflight(asked).look()
    except SweepstackError as error:
        result = {"problems": [str(error)]}
    write_json_atomically(Path(asked["result"]), result)
    return 0


class Preflight:
    """One look at all nodes of a box."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self.asked = asked
        self.home, self.box = Path(asked["home"]), Path(asked["home"]).parent.parent
        self.allocation = Allocation.of(asked["allocation"]) if asked.get("allocation") else None
        self.peers = [peer_of(name, self.allocation) for name in asked["peers"]]
        self.careful = [peer_of(name, self.allocation, careful=True) for name in asked["peers"]]
        self.names = [asked["first"], *asked["peers"]]
        self.program = str(Path(asked["runner"]) / "nodes.py")
        self.mirror = Mirror(self.box, asked["native_id"], Path(asked["durable"]), asked["python"])
        self.pool = ThreadPoolExecutor(max(4, len(self.peers) + 1))

    def look(self) -> dict[str, Any]:
        """All steps. Raises SweepstackError at the first that can't be done."""
        ways = self._ways()
        problems = list(wrong_interfaces(self.names, ways)) or self._network(ways) or self._chosen(ways)
        if problems:
            return {"problems": problems}
        there = self._bring()
        began = time.time()
        first = facts.facts(self.asked["cell"], self.home, self.asked["code"])
        found = [{**first, "time": 0.0}, *self._each(self._facts)]
        if not first["code"] and any(one["code"] for one in found):  # a peer's was changed there
            self._bring(again=True)
            found[1:] = self._each(self._facts)
        shared = [{"shared": True, "durable": True}, *({"shared": one.shared, "durable": one.durable} for one in there)]
        nodes = [
            {"name": name, "interface": list(way), **one, **more}
            for name, way, one, more in zip(self.names, ways, found, shared)
        ]
        return {
            "problems": list(differences(self.names, found)),
            "nodes": nodes,
            "seconds": round(time.time() - began, 1),
        }

    def _ways(self) -> list[Interface]:
        """How each node sees the others: the interface that leads from a peer to this node, and from this node to the
        first peer. This is also the first contact: a name that leads nowhere is not in the box's record."""

        def way(peer: Carrier) -> tuple[Interface, Interface]:
            address = peer.address()
            try:
                own = network.towards(address)
            except OSError as error:
                raise SweepstackError(f"no way leads from this node to {peer.name} ({address}): {error}") from error
            answer = peer.ask(self._network_argv("towards", own.address))
            try:
                return own, Interface(*json.loads(answer.out.splitlines()[-1]))
            except (ValueError, IndexError, TypeError) as error:
                why = f"it has no {self.asked['python']}, which runs on all nodes" if answer.code == 127 else answer.err
                raise SweepstackError(f"{peer.name} finds no way to this node, {own.address}: {why}") from error

        found = self._each(way, careful=True)
        return [found[0][0], *(its for _, its in found)]

    def _chosen(self, ways: Sequence[Interface]) -> list[str]:
        """What is wrong with the interfaces that the job itself names to its ranks: one that is not there, or leads to
        no other node, is a wait without a word."""
        problems: list[str] = []
        for variable, value in self.asked.get("sockets", {}).items():
            words = [value, variable.startswith("NCCL")]
            wrong, found = [], []
            for name, peer in zip(self.names, [None, *self.careful]):
                try:
                    found.append(network.named(value, words[1]) if peer is None else self._named(peer, words))
                except OSError as error:
                    wrong.append(f"{name}: {error}")
            if not wrong and found != list(ways):
                wrong = list(wrong_interfaces(self.names, found)) or self._network(found)
            if wrong:
                problems.append(
                    f"job.env has {variable}={value}. {'; '.join(wrong)}. Leave it out: the ranks are told the way by "
                    f"which the nodes see each other ({', '.join(dict.fromkeys(way.name for way in ways))})"
                )
        return problems

    def _named(self, peer: Carrier, words: Sequence[Any]) -> Interface:
        """Raises OSError where the peer has none, SweepstackError."""
        answer = peer.ask(self._network_argv("named", json.dumps(words)))
        if answer.code:
            raise OSError(answer.err.rpartition("OSError: ")[2])
        return Interface(*json.loads(answer.out.splitlines()[-1]))

    def _bring(self, again: bool = False) -> list[There]:
        """What the cells need, to each peer; with `again` the code alone, also where it was brought before. To nodes of
        an allocation nothing is brought, and so nothing is to be removed there: they see the box's folder."""
        if self.allocation is not None:
            with self.mirror.marked() as nonce:
                return self._each(lambda peer: self._sees(peer, nonce))
        home = "data/sweep"
        sent = [f"{home}/shipped", f"{home}/code/{hex_of(self.asked['code'])}"]
        if not again:
            sent += [f"{home}/{Path(self.asked['runner']).name}", f"{home}/checkpoint"]
        if self.asked["environment"] and not again:
            sent.append(str(Path(self.asked["environment"]).relative_to(self.box)))
        command = [self.asked["python"], "-I", "-S", self.program, "release", str(self.box), self.asked["native_id"]]
        command += [self.asked["python"], self.asked["runner"], self.asked["durable"]]
        release.note(self.box, self.asked["peers"], command)
        with self.mirror.marked() as nonce:
            return self._each(lambda peer: self.mirror.bring(peer, nonce, sent, again))

    def _sees(self, peer: Carrier, nonce: str) -> There:
        """Proves that a peer sees the box's folder. A network file system may show a new file some seconds later."""
        marks = [str(folder / f"node-{nonce}") for folder in (self.box, self.mirror.durable)]
        looks = " && ".join(f"test -e {shlex.quote(mark)}" for mark in marks)
        wait = f"n=0; until {looks}; do n=$((n+1)); [ $n -le {SEEN_SECONDS} ] || exit 3; sleep 1; done"
        answer = peer.ask(["/bin/sh", "-c", wait], seconds=2 * SEEN_SECONDS)
        if answer.code:
            raise SweepstackError(
                f"{peer.name} does not see {self.box}, where the box lies: name a folder on a tier that all nodes see "
                f"(host: user@login/folder){f' ({answer.err})' if answer.err else ''}"
            )
        return There(True, True, {})

    def _network_argv(self, verb: str, words: str) -> list[str]:
        return [self.asked["python"], "-I", "-S", "-c", NETWORK.read_text(encoding="utf-8"), verb, words]

    def _each(self, do: Callable[[Carrier], T], careful: bool = False) -> list[T]:
        """The result for each peer, at once; raises all that was raised as one error."""
        futures = [self.pool.submit(do, peer) for peer in (self.careful if careful else self.peers)]
        results, wrong = [], []
        for future in futures:
            try:
                results.append(future.result())
            except SweepstackError as error:
                wrong.append(str(error))
        if wrong:
            raise SweepstackError("; ".join(wrong))
        return results

    def _facts(self, peer: Carrier) -> dict[str, Any]:
        words = json.dumps({name: self.asked[name] for name in ("home", "code", "cell", "python")})
        began = time.time()
        answer = peer.ask([self.asked["python"], "-I", "-S", self.program, "facts", words], seconds=ASK_SECONDS)
        ended = time.time()
        try:
            found = dict(json.loads(answer.out.splitlines()[-1]))
        except (ValueError, IndexError) as error:
            raise SweepstackError(f"{peer.name} does not say what it has: {answer.err or answer.code}") from error
        # Its clock was read somewhere between `began` and `ended`.
        said = float(found["time"])
        ahead = said - ended if said > ended else said - began if said < began else 0.0
        return {**found, "time": round(ahead, 3)}

    def _network(self, ways: Sequence[Interface]) -> list[str]:
        """Tries the network between every two nodes."""
        pairs = [(i, j) for j in range(1, len(ways)) for i in range(j)]
        problems = []
        for here in range(1, len(ways)):
            listening = self._listen(here, ways[here].address)
            try:
                ports = json.loads(listening.stdout.readline() if listening.stdout else b"{}")
                for there in [i for i, j in pairs if j == here]:
                    found = self._probe(there, ways[there], ways[here], ports)
                    wrong = network.hole(self.names[there], self.names[here], ways[there], ways[here], found)
                    problems += [wrong] if wrong else []
            except (ValueError, KeyError) as error:
                problems.append(f"{self.names[here]} can't listen on {ways[here].address}: {error}")
            finally:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    listening.communicate(timeout=END_SECONDS)  # it ends when its stdin closes
                listening.kill()
                listening.communicate()
        return problems

    def _listen(self, node: int, address: str) -> subprocess.Popen[bytes]:
        argv = self.careful[node - 1].command(self._network_argv("listen", address))
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def _probe(self, node: int, own: Interface, other: Interface, ports: Mapping[str, int]) -> dict[str, Any]:
        if node == 0:
            return network.measure_path(own, other, ports["udp"], ports["tcp"])
        words = json.dumps([list(own), list(other), ports["udp"], ports["tcp"]])
        answer = self.careful[node - 1].ask(self._network_argv("probe", words))
        return dict(json.loads(answer.out.splitlines()[-1]))


def wrong_interfaces(names: Sequence[str], ways: Sequence[Interface]) -> Iterator[str]:
    """Where packets for the other nodes leave by a way that leads to no other machine."""
    for name, interface in zip(names, ways):
        if interface.name == "lo":
            yield f"{name} is reached by its own loopback: name another machine in boxes.<name>.peers"
        elif interface.name.startswith(NOT_A_WAY):
            yield (
                f"{name}: {interface.name} ({interface.address}) leads to the other nodes, and that is a bridge of its "
                "own: name the peers by an address in their own network"
            )


def differences(names: Sequence[str], found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What differs between the nodes, or is wrong on one, each with its node and its fix. `found`: of `facts`; `time`
    is by how many seconds a node's clock is ahead of the first one's."""
    first = found[0]
    for name, one in zip(names, found):
        versions = one["versions"]
        if "problem" in versions:
            yield f"{name}: the Python of the cells does not say what it has: {versions['problem']}"
        elif "torch" not in versions:
            where = versions.get("executable", "")
            yield f"{name}: torch is not installed in the Python that runs the cells ({where}), and torchrun needs it"
        for what in ("python", "torch", "nccl"):
            mine, its = first["versions"].get(what, "none"), versions.get(what, "none")
            if "problem" not in versions and mine != its:
                yield f"{name} has {what} {its}, and {names[0]} has {mine}: install the same on all nodes"
        if one["gpus"] != first["gpus"]:
            yield (
                f"{name} has {_cards(one['gpus'])}, and {names[0]} has {_cards(first['gpus'])}: the nodes of "
                "a cell need the same GPUs"
            )
        if one["fabric"]:
            yield (
                f"{name}: {one['fabric']}, and all ranks of all nodes would wait for it without a word: "
                "`systemctl restart nvidia-fabricmanager` there; where that does not help, take another machine"
            )
        if abs(one["time"]) > CLOCK_SECONDS:
            yield (
                f"{name}: its clock is {abs(one['time']):.0f} s {'ahead' if one['time'] > 0 else 'behind'}: "
                "`timedatectl set-ntp true` there"
            )
        if one["code"]:
            yield f"{name}: {one['code']}"


def _cards(names: Sequence[str]) -> str:
    return f"{len(names)}× {names[0]}" if names else "no GPU"
