"""How to break RunPod: its simulator on loopback, whose ledger says what is true."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.host.platform import BoxRequest, Platform, VolumeRecord
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.registry import load_platform
from sweepstack.platforms.runpod import power
from sweepstack.platforms.runpod.api import FRESH_SECONDS
from tests.conformance.harness import FAULTS, created_at_once
from tests.simulators.core import SimServer, VirtualClock
from tests.simulators.runpod import CREATE, DELETE, KEY, LIST, OTHER_KEY, Boot, RunPodSim
from tests.simulators.runpod.spot import SPOT_CREATE

REGION = "EU-RO-1"
READ, ONE, ACTION = "GET /v2/pods*", "GET /v2/pods/{id}", "POST /v2/pods/{id}/action"
WHERE = {
    "create": (CREATE,),
    "read": (READ,),
    "delete": (DELETE, ACTION),
    "start": (ACTION,),
    "spot": (SPOT_CREATE,),
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
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
    "out_of_capacity": ("out_of_capacity", {}),
    "low_balance": ("low_balance", {}),
    "never_ready": ("never_ready", {}),
    "dies_while_starting": ("dies_while_starting", {"reads": 0}),
    "preempted": ("preempted", {}),
    "vanished": ("vanished", {}),
    "odd_status": ("odd_status", {"status": "MIGRATING", "reads": 3}),
    "delete_lingers": ("delete_lingers", {"reads": 3}),
    "delete_stays": ("delete_lingers", {"reads": None}),
    "zero_gpus": ("zero_gpus", {}),
    "no_room": ("start_no_gpus", {}),
    "refused_yet_made": ("error_after", {"status": 500}),
}
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
    "refused_yet_made": ("spot",),
}
TIMEOUT = "30"
"""Seconds for an answer: it may wait for its turn on this machine."""


class Harness:
    """See `harness.Harness`."""

    adapter = "runpod"
    host = False
    wire = True
    price = None
    killed_by_stop = ("scratch", "data")
    kept_by_stop = ("mnt/durable",)
    secrets = (KEY, OTHER_KEY)
    plays = frozenset(
        {(fault, verb) for fault in KINDS for verb in ONLY.get(fault, ("create", "read", "delete"))}
        | {("foreign_account", "read"), ("foreign_account", "delete")}  # a create belongs to the account at hand
    )
    impossible = frozenset({"says_no"})  # its errors have a status

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machines: bool) -> None:
        self._patch, self._machines = monkeypatch, machines
        key = tmp_path / "id_ed25519"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        self._public_key = key.with_suffix(".pub").read_text().strip()
        state = tmp_path / "runpod"
        self.sim = RunPodSim(clock=VirtualClock(scale=1.0), boot=Boot(reads=0), machines=machines, state=state)
        self._server = SimServer(self.sim)
        for name, value in {
            "HOME": str(tmp_path),
            "XDG_DATA_HOME": str(tmp_path / "share"),
            "RUNPOD_API_BASE_URL": self._server.url,
            "RUNPOD_API_KEY": KEY,
            "SWEEPSTACK_SSH_KEY": str(key),
            "SWEEPSTACK_API_PACE": "0.01",
            "SWEEPSTACK_API_TIMEOUT": TIMEOUT,
        }.items():
            monkeypatch.setenv(name, value)
        # At the pace of tests it is 200 ms, and a busy machine takes longer.
        monkeypatch.setattr(power, "STOP_SECONDS", 6000.0)
        if not machines:  # nothing would answer: what the API says is enough
            monkeypatch.setattr("sweepstack.platforms.common.probe.ON", False)

    def connect(self) -> Platform:
        return load_platform(self.adapter)

    def request(self, tag: str, **changes: Any) -> BoxRequest:
        return BoxRequest(**{"tag": tag, "name": "box-0", "public_key": self._public_key, **changes})

    def volume(self, platform: Platform, tag: str) -> VolumeRecord:
        return platform.ensure_volume(tag, "durable", size_gb=10, region=REGION)

    def rentals(self) -> set[str]:
        with self.sim.lock:
            return {rental.id for rental in self.sim.ledger.live("pod")}

    def doubled(self) -> dict[str, list[str]]:
        with self.sim.lock:
            return self.sim.ledger.doubled("pod")

    def inject(self, fault: str, verb: str, *, times: int | None = 1) -> None:
        assert fault in FAULTS
        if fault == "foreign_account":
            self.make_foreign()
            return
        kind, params = KINDS[fault]
        if kind.startswith(
            "hang"
        ):  # an answer never comes, or the next attempt brings it: neither is worth a long wait
            self._patch.setenv("SWEEPSTACK_API_TIMEOUT", "0.5" if verb == "read" and times is None else "2")
        places = (LIST,) if fault == "stale_list" else ("GET /v2/*",) if fault == "no_key" else WHERE[verb]
        if verb == "read" and fault in ("preempted", "vanished"):  # at once: a list is all that a read may ask for
            for native_id in self.rentals():
                self.sim.act({"preempted": "preempt", "vanished": "vanish"}[fault], {"id": native_id})
        else:
            for place in places if fault != "vanished" else (ONE, *places[1:]):
                self.sim.faults.add(kind, place, times=times, **params)
        self._outlive_the_list()

    def outbid(self, native_id: str) -> None:
        self.sim.act("outbid", {"id": native_id})
        self._outlive_the_list()

    def slow_boot(self, seconds: float) -> None:
        self.sim.pods.boot = Boot(reads=0, seconds=seconds)

    def lose_answers(self) -> None:
        self.sim.faults.add("lost_answer", CREATE, times=None)

    def fail_late(self) -> None:
        self.sim.faults.add("error_after", CREATE, times=None)

    def make_unreadable(self, native_id: str) -> None:
        self.sim.act("set", {"id": native_id, "odd_status": ("TRANSCENDED", 10**9)})
        self._outlive_the_list()

    def make_foreign(self) -> None:
        self._patch.setenv("RUNPOD_API_KEY", OTHER_KEY)

    def cut_off(self) -> None:
        self.sim.faults.add("lost_request", times=None)
        self._outlive_the_list()

    def remove_by_hand(self, native_id: str) -> None:
        self.sim.act("vanish", {"id": native_id})
        self._outlive_the_list()

    def _outlive_the_list(self) -> None:
        """What others do to a box is seen when the list that all reads share has become too old to be shared."""
        time.sleep(2 * paced(FRESH_SECONDS))

    def repair(self) -> None:
        self.sim.faults.clear()
        self._patch.setenv("SWEEPSTACK_API_TIMEOUT", TIMEOUT)
        self._patch.setenv("RUNPOD_API_KEY", KEY)
        self._outlive_the_list()
        self.sim.pods.boot = Boot(reads=0)
        with self.sim.lock:
            self.sim.stock.floors.clear()
            for pod in self.sim.pods.all.values():
                pod.odd_status = None
                if pod.lingers and pod.lingering is None:
                    pod.lingers, pod.lingering_as = False, ""

    def create_at_once(self, request: BoxRequest, count: int) -> set[str]:
        return created_at_once(self.adapter, request, count, machines=self._machines)

    def close(self) -> None:
        self._server.close()
        if "sweepstack.platforms.runpod.api" in sys.modules:  # another world may get this one's port and ids
            sys.modules["sweepstack.platforms.runpod.api"].forget()
        self.sim.check()
