"""How to break Lambda's Cloud API: its simulator on loopback, whose ledger says what is true."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.host.platform import BoxRequest, Phase, Platform
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.lambda_api import power
from sweepstack.platforms.lambda_api.api import FRESH_SECONDS
from sweepstack.platforms.registry import load_platform
from tests.conformance.harness import FAULTS, created_at_once
from tests.simulators.core import SimServer, VirtualClock
from tests.simulators.lambda_api import (
    AT_ONCE,
    GET,
    KEY,
    LAUNCH,
    LIST,
    OTHER_KEY,
    TERMINATE,
    LambdaSim,
    Times,
    catalog,
)

REGIONS = tuple(catalog.REGIONS)
READS = "GET /api/v1/instances*"
WHERE = {"create": (LAUNCH,), "read": (READS,), "delete": (TERMINATE,)}
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
    "low_balance": ("bad_address", {}),
    "never_ready": ("boots_stuck", {}),
    "dies_while_starting": ("boots_unhealthy", {}),
    "preempted": ("preempted", {}),
    "vanished": ("vanished", {}),
    "odd_status": ("odd_status", {"status": "migrating", "reads": 3}),
    "delete_lingers": ("terminate_lingers", {"seconds": 0.5}),
    "delete_stays": ("terminate_ignored", {}),
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
}
TIMEOUT = "30"
"""Seconds for an answer: it may wait for its turn on this machine."""


class Harness:
    """See `harness.Harness`."""

    adapter = "lambda_api"
    host = False
    wire = True
    spawns = False
    """Nothing stands behind an instance of the simulator."""
    price: float | None = None
    killed_by_stop: tuple[str, ...] = ()
    kept_by_stop: tuple[str, ...] = ()
    secrets = (KEY, OTHER_KEY)
    preempted = Phase.UNKNOWN
    """Lambda does not say what is left of an instance that it preempted, nor whether it bills."""
    plays = frozenset(
        {(fault, verb) for fault in KINDS for verb in ONLY.get(fault, ("create", "read", "delete"))}
        | {("foreign_account", "read"), ("foreign_account", "delete")}  # a create belongs to the account at hand
    )
    impossible = frozenset(
        {
            "says_no",  # its errors have a status
            "zero_gpus",  # there is no start, in which a box could lose its cards
            "no_room",  # nor one that could find them taken
            "refused_yet_made",  # there are no spot boxes, so no bids
        }
    )

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machines: bool) -> None:
        self._patch = monkeypatch
        key = tmp_path / "id_ed25519"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        self._public_key = key.with_suffix(".pub").read_text().strip()
        self.sim = LambdaSim(clock=VirtualClock(scale=1.0), times=AT_ONCE)
        for place in REGIONS[2:]:  # each offer that is refused takes its turn: a few are enough
            self.sim.stock.empty(place=place)
        self._server = SimServer(self.sim)
        for name, value in {
            "HOME": str(tmp_path),
            "XDG_DATA_HOME": str(tmp_path / "share"),
            "LAMBDA_API_BASE_URL": f"{self._server.url}/api/v1",
            "LAMBDA_API_KEY": KEY,
            "SWEEPSTACK_SSH_KEY": str(key),
            "SWEEPSTACK_API_PACE": "0.01",
            "SWEEPSTACK_API_TIMEOUT": TIMEOUT,
        }.items():
            monkeypatch.setenv(name, value)
        # At the pace of tests it is 300 ms, and a busy machine takes longer.
        monkeypatch.setattr(power, "GONE_SECONDS", 100.0)
        monkeypatch.setattr("sweepstack.platforms.common.probe.ON", False)  # what the API says is enough

    def connect(self) -> Platform:
        return load_platform(self.adapter)

    def request(self, tag: str, **changes: Any) -> BoxRequest:
        return BoxRequest(**{"tag": tag, "name": "box-0", "public_key": self._public_key, **changes})

    def rentals(self) -> set[str]:
        with self.sim.lock:
            self.sim.settle()
            return {rental.id for rental in self.sim.ledger.live("instance")}

    def doubled(self) -> dict[str, list[str]]:
        with self.sim.lock:
            return self.sim.ledger.doubled("instance")

    def inject(self, fault: str, verb: str, *, times: int | None = 1) -> None:
        assert fault in FAULTS
        if fault == "foreign_account":
            self.make_foreign()
            return
        kind, params = KINDS[fault]
        if kind.startswith("hang"):  # an answer never comes: it is not worth a long wait
            self._patch.setenv("SWEEPSTACK_API_TIMEOUT", "0.5" if verb == "read" and times is None else "2")
        places = (LIST,) if fault == "stale_list" else ("* /api/v1/*",) if fault == "no_key" else WHERE[verb]
        if verb == "read" and fault in ("preempted", "vanished"):  # at once: a list is all that a read may ask for
            for native_id in self.rentals():
                self.sim.act({"preempted": "preempt", "vanished": "vanish"}[fault], {"id": native_id})
        else:
            for place in places if fault != "vanished" else (GET, *places):
                self.sim.faults.add(kind, place, times=times, **params)
        self._outlive_the_list()

    def slow_boot(self, seconds: float) -> None:
        self.sim.instances.times = Times(0, 0, seconds, 0, 0, reads=1)

    def lose_answers(self) -> None:
        self.sim.faults.add("lost_answer", LAUNCH, times=None)

    def fail_late(self) -> None:
        self.sim.faults.add("error_after", LAUNCH, times=None)

    def make_unreadable(self, native_id: str) -> None:
        self.sim.act("set", {"id": native_id, "odd_status": ("transcended", 10**9)})
        self._outlive_the_list()

    def make_foreign(self) -> None:
        self._patch.setenv("LAMBDA_API_KEY", OTHER_KEY)

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
        self._patch.setenv("LAMBDA_API_KEY", KEY)
        self.sim.instances.times = AT_ONCE
        with self.sim.lock:
            for one in self.sim.instances.all.values():
                one.odd_status = None
        self._outlive_the_list()

    def create_at_once(self, request: BoxRequest, count: int) -> set[str]:
        return created_at_once(self.adapter, request, count, machines=False)

    def close(self) -> None:
        self._server.close()
        if "sweepstack.platforms.lambda_api.api" in sys.modules:  # another world may get this one's port and ids
            sys.modules["sweepstack.platforms.lambda_api.api"].forget()
        self.sim.check()
