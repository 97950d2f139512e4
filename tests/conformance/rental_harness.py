"""What the harnesses of rental platforms do alike: a simulator on loopback, whose ledger says what is true."""

from __future__ import annotations

import functools
import operator
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from sweepstack.onbox.host.platform import BoxRequest, Platform
from sweepstack.platforms.registry import load_platform
from tests.conformance.harness import FAULTS, created_at_once
from tests.simulators.core import SimServer

PACE = 0.01
TIMEOUT = "30"
"""Seconds for an answer: it may wait for the machine that it starts, and for its turn on this one."""
FOREVER = 6000.0
"""At the pace of tests a minute: the adapter's own limits are less than a second there, and a busy machine takes
longer."""
Kinds = dict[str, tuple[str, dict[str, Any]]]
KINDS: Kinds = {
    "too_many": ("too_many", {}),
    "too_many_retry_after": ("too_many", {"retry_after": 1}),
    "error_before": ("error_before", {"status": 503}),
    "error_after": ("error_after", {"status": 500}),
    "lost_request": ("lost_request", {"reset": True}),
    "lost_answer": ("lost_answer", {}),
    "hang_before": ("hang_before", {}),
    "hang_after": ("hang_after", {}),
    "truncated": ("truncated", {}),
    "html": ("html_before", {"status": 502}),
    "html_ok": ("html_ok", {}),
    "no_key": ("auth", {}),
    "stale_list": ("stale_list", {}),
    "preempted": ("preempted", {}),
    "vanished": ("vanished", {}),
}
"""What every simulator has: fault → its kind there, with parameters."""
ONLY = {
    "stale_list": ("read",),
    "out_of_capacity": ("create",),
    "low_balance": ("create",),
    "never_ready": ("create",),
    "dies_while_starting": ("create",),
    "preempted": ("read",),
    "vanished": ("read", "delete"),
    "odd_status": ("read", "delete"),
    "delete_lingers": ("delete",),
    "delete_stays": ("delete",),
    "zero_gpus": ("start",),
    "no_room": ("start",),
    "says_no": ("create", "delete"),
    "refused_yet_made": ("spot",),
}
"""Faults that can't happen at each of create, read and delete."""


def played(kinds: Kinds) -> frozenset[tuple[str, str]]:
    """All (fault, verb) pairs of a simulator that has these kinds."""
    pairs = {(fault, verb) for fault in kinds for verb in ONLY.get(fault, ("create", "read", "delete"))}
    return frozenset(pairs | {("foreign_account", "read"), ("foreign_account", "delete")})  # a create is of who asks


@functools.cache
def _key_pair() -> tuple[str, str]:
    """One for all worlds of this process: none of them changes it."""
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "id_ed25519"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        return key.read_text(), key.with_suffix(".pub").read_text().strip()


class RentalHarness:
    """See `harness.Harness`. A class of it says what the constants are, makes the simulator, and mends it."""

    adapter: str
    host = False
    wire = True
    price: float | None = None
    killed_by_stop: tuple[str, ...] = ()
    kept_by_stop: tuple[str, ...] = ()
    secrets: tuple[str, str]
    """Two keys: ours, and another customer's."""
    plays: frozenset[tuple[str, str]]

    box: str
    """What the ledger calls a box."""
    url: str
    key: str
    """Environment variables."""
    kinds: Kinds
    where: ClassVar[dict[str, tuple[str, ...]]]
    """Verb → the calls at which its faults happen."""
    elsewhere: ClassVar[dict[str, tuple[str, ...]]]
    """Faults that happen at other calls than their verb's own."""
    at_once: ClassVar[dict[str, str]] = {}
    """Fault → the act that does it. For reads, where a list is all that may be asked for."""
    late: tuple[str, ...] = ("create", "read", "delete", "start", "spot")
    """Verbs that may use what was read before the fault."""
    fresh: float
    """Seconds, at the pace of the real platform, that the adapter may reuse what it has read."""
    limits: tuple[tuple[ModuleType, str, float], ...] = ()
    """Of the adapter: module, name, and the seconds that it gets."""
    cache: str
    """What drops all that the adapter has read in this process, as `module:function`."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machines: bool) -> None:
        self._patch, self._machines, self._broken = monkeypatch, machines, False
        private, self._public_key = _key_pair()
        key = tmp_path / "id_ed25519"
        key.touch(0o600)
        key.write_text(private)
        key.with_suffix(".pub").write_text(f"{self._public_key}\n")
        self.sim = self.simulator(tmp_path / self.adapter, machines)
        self._server = SimServer(self.sim)
        for name, value in {
            "HOME": str(tmp_path),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "XDG_DATA_HOME": str(tmp_path / "share"),
            self.url: self._server.api,
            "SWEEPSTACK_SSH_KEY": str(key),
            "SWEEPSTACK_API_PACE": str(5 * PACE if machines else PACE),
        }.items():
            monkeypatch.setenv(name, value)
        if not machines:  # nothing would answer: what the API says is enough
            monkeypatch.setattr("sweepstack.platforms.common.reach_box.ON", False)
        self._set()

    def simulator(self, state: Path, machines: bool) -> Any:
        """The platform, with two customers."""
        raise NotImplementedError

    def mend(self) -> None:
        """Undoes what the harness did to the simulator, but for faults. Its lock is held."""
        raise NotImplementedError

    def _set(self) -> None:
        for module, name, seconds in self.limits:
            self._patch.setattr(module, name, seconds)
        self._patch.setenv("SWEEPSTACK_API_TIMEOUT", TIMEOUT)
        self._patch.setenv(self.key, self.secrets[0])

    def connect(self) -> Platform:
        return load_platform(self.adapter)

    def request(self, tag: str, **changes: Any) -> BoxRequest:
        return BoxRequest(**{"tag": tag, "name": "box-0", "public_key": self._public_key, **changes})

    def rentals(self) -> set[str]:
        with self.sim.lock:
            self.sim.settle()
            return {rental.id for rental in self.sim.ledger.live(self.box)}

    def rate(self, native_id: str) -> float:
        with self.sim.lock:
            self.sim.settle()
            return next(float(rental.rate) for rental in self.sim.ledger.live(self.box) if rental.id == native_id)

    def doubled(self) -> dict[str, list[str]]:
        with self.sim.lock:
            doubled: dict[str, list[str]] = self.sim.ledger.doubled(self.box)
            return doubled

    def inject(self, fault: str, verb: str, *, times: int | None = 1) -> None:
        assert fault in FAULTS
        self._broken = True
        if fault == "foreign_account":
            self.make_foreign()
            return
        kind, params = self.kinds[fault]
        if kind.startswith("hang"):  # an answer never comes, or the next attempt brings it
            self._patch.setenv("SWEEPSTACK_API_TIMEOUT", "0.5" if verb == "read" and times is None else "2")
        if verb == "read" and fault in self.at_once:
            for native_id in self.rentals():
                self.sim.act(self.at_once[fault], {"id": native_id})
        else:
            for place in self.elsewhere.get(fault, self.where[verb]):
                self.sim.faults.add(kind, place, times=times, **params)
        if verb in self.late:
            self.outlive()

    def odd_cards(self) -> tuple[str, ...]:
        return ()

    def outbid(self, native_id: str) -> None:
        self.sim.act("outbid", {"id": native_id})
        self.outlive()

    def lose_answers(self) -> None:
        self._break_creates("lost_answer")

    def fail_late(self) -> None:
        self._break_creates("error_after")

    def _break_creates(self, fault: str) -> None:
        self._broken = True
        kind, params = self.kinds[fault]
        self.sim.faults.add(kind, self.where["create"][0], times=None, **params)

    def make_foreign(self) -> None:
        self._broken = True
        self._patch.setenv(self.key, self.secrets[1])

    def cut_off(self) -> None:
        self.sim.faults.add("lost_request", times=None)
        self.outlive()

    def remove_by_hand(self, native_id: str) -> None:
        self.sim.act("vanish", {"id": native_id})
        self.outlive()

    def outlive(self) -> None:
        """What others do to a box is seen when what all reads share has become too old to be shared."""
        self._broken = True
        time.sleep(2 * PACE * self.fresh)

    def repair(self) -> None:
        """Nothing was read wrong, or behind the adapter's back, where nothing was broken since the last time."""
        self.sim.faults.clear()
        self._set()
        with self.sim.lock:
            self.mend()
        if self._broken:
            self.outlive()
        self._broken = False

    def create_at_once(self, request: BoxRequest, count: int) -> set[str]:
        self._broken = True
        return created_at_once(self.adapter, request, count, machines=self._machines)

    def close(self) -> None:
        self._server.close()
        module, _, forget = self.cache.partition(":")
        if module in sys.modules:  # another world may get this one's port and ids
            operator.attrgetter(forget)(sys.modules[module])()
        self.sim.check()
