"""How to break Paperspace's API: its simulator on loopback, whose ledger says what is true."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.host.platform import BoxRequest, Platform
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.paperspace_api import power
from sweepstack.platforms.paperspace_api.api import FRESH_SECONDS
from sweepstack.platforms.registry import load_platform
from tests.conformance.harness import FAULTS, created_at_once
from tests.simulators.core import SimServer, VirtualClock
from tests.simulators.paperspace import (
    AT_ONCE,
    CREATE,
    DELETE,
    GET,
    KEY,
    LIST,
    OTHER_KEY,
    START,
    PaperspaceSim,
    Times,
)

READS = "GET /v1/machines*"
WHERE = {"create": (CREATE,), "read": (READS,), "delete": (DELETE,), "start": (START,)}
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
    "low_balance": ("bad_standing", {}),
    "never_ready": ("stuck", {}),
    "dies_while_starting": ("start_fails", {}),
    "preempted": ("preempted", {}),
    "vanished": ("vanished", {}),
    "odd_status": ("odd_state", {"state": "migrating", "reads": 3}),
    "delete_lingers": ("delete_lingers", {"seconds": 0.5}),
    "delete_stays": ("ignored", {}),
    "no_room": ("start_fails", {}),
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
    "no_room": ("start",),
}
ELSEWHERE = {
    "stale_list": (LIST,),
    "no_key": ("* /v1/*",),
    "low_balance": (CREATE, "GET /v1/billing/account-standing"),
    "dies_while_starting": (START,),
}
"""Faults that happen at other calls than their verb's own."""
TIMEOUT = "30"
"""Seconds for an answer: it may wait for its turn on this machine."""


class Harness:
    """See `harness.Harness`."""

    adapter = "paperspace_api"
    host = False
    wire = True
    spawns = False
    """Nothing stands behind a machine of the simulator."""
    price: float | None = 0.76
    """What the stack file says, and what an A4000 of the simulator says of itself."""
    killed_by_stop: tuple[str, ...] = ()
    kept_by_stop: tuple[str, ...] = ("scratch", "data", "mnt/durable")
    """All that lies on a machine's one disk, by the vendor's pages: the simulator has no disks."""
    secrets = (KEY, OTHER_KEY)
    proved_by = "tests/unit/platforms/test_paperspace_api_platform.py: each answer of Paperspace by itself"
    quick = frozenset(
        {
            "test_a_rented_box_is_what_was_asked_for",
            "test_the_same_request_is_adopted_and_not_doubled",
            "test_already_gone_is_a_success",
            "test_a_box_removed_by_hand_is_gone",
            "test_what_cannot_be_read_is_unknown_and_not_gone",
            "test_a_platform_that_does_not_answer_is_never_gone",
            "test_another_accounts_box_is_not_touched",
            "test_a_cancelled_create_keeps_the_id",
            "test_a_stopped_box_is_listed_adopted_as_it_is_and_can_be_destroyed",
            "test_a_start_that_is_too_slow_keeps_the_id",
            "test_a_list_that_lies_does_not_rent_what_another_process_has",
            "test_each_fault_is_played_somewhere",
            ("error_after", "create"),
            ("lost_answer", "create"),
            ("lost_answer", "delete"),
            ("delete_lingers", "delete"),
            ("foreign_account", "delete"),
            ("no_room", "start"),
        }
    )
    plays = frozenset(
        {(fault, verb) for fault in KINDS for verb in ONLY.get(fault, ("create", "read", "delete"))}
        | {("foreign_account", "read"), ("foreign_account", "delete")}  # a create belongs to the account at hand
    )
    impossible = frozenset(
        {
            "says_no",  # its errors have a status
            "zero_gpus",  # a machine keeps its type, and starts with its cards or not at all
            "refused_yet_made",  # there are no spot boxes, so no bids
        }
    )

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machines: bool) -> None:
        self._patch = monkeypatch
        key = tmp_path / "id_ed25519"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        self._public_key = key.with_suffix(".pub").read_text().strip()
        self.sim = PaperspaceSim(clock=VirtualClock(scale=1.0), times=AT_ONCE)
        self._server = SimServer(self.sim)
        for name, value in {
            "HOME": str(tmp_path),
            "XDG_DATA_HOME": str(tmp_path / "share"),
            "PAPERSPACE_API_BASE_URL": f"{self._server.url}/v1",
            "PAPERSPACE_API_KEY": KEY,
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
        resources = {"gpu": {"name": ["A4000"], "count": 1}}
        asked = {"tag": tag, "name": "box-0", "price_per_hour": self.price, "resources": resources}
        return BoxRequest(**{**asked, "public_key": self._public_key, **changes})

    def rentals(self) -> set[str]:
        with self.sim.lock:
            self.sim.settle()
            return {rental.id for rental in self.sim.ledger.live("machine")}

    def doubled(self) -> dict[str, list[str]]:
        with self.sim.lock:
            return self.sim.ledger.doubled("machine")

    def inject(self, fault: str, verb: str, *, times: int | None = 1) -> None:
        assert fault in FAULTS
        if fault == "foreign_account":
            self.make_foreign()
            return
        kind, params = KINDS[fault]
        if kind.startswith("hang"):  # an answer never comes: it is not worth a long wait
            self._patch.setenv("SWEEPSTACK_API_TIMEOUT", "0.5" if verb == "read" and times is None else "2")
        if verb == "read" and fault in ("preempted", "vanished"):  # at once: a list is all that a read may ask for
            for native_id in self.rentals():
                self.sim.act({"preempted": "power_off", "vanished": "vanish"}[fault], {"id": native_id})
        else:
            places = ELSEWHERE.get(fault, WHERE[verb])
            for place in places if fault != "vanished" else (GET, *places):
                self.sim.faults.add(kind, place, times=times, **params)
        self._outlive_the_list()

    def slow_boot(self, seconds: float) -> None:
        self.sim.machines.times = Times(0, 0, seconds, 0, 0, 0, 0, reads=1)  # it can be stopped meanwhile

    def lose_answers(self) -> None:
        self.sim.faults.add("lost_answer", CREATE, times=None)

    def fail_late(self) -> None:
        self.sim.faults.add("error_after", CREATE, times=None)

    def make_unreadable(self, native_id: str) -> None:
        self.sim.faults.add("odd_state", READS, times=None, state="transcended", reads=10**9)
        self._outlive_the_list()

    def make_foreign(self) -> None:
        self._patch.setenv("PAPERSPACE_API_KEY", OTHER_KEY)

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
        self._patch.setenv("PAPERSPACE_API_KEY", KEY)
        self.sim.machines.times = AT_ONCE
        with self.sim.lock:
            for one in self.sim.machines.all.values():
                one.odd_state, one.stuck = None, ""
        self._outlive_the_list()

    def create_at_once(self, request: BoxRequest, count: int) -> set[str]:
        return created_at_once(self.adapter, request, count, machines=False)

    def close(self) -> None:
        self._server.close()
        if "sweepstack.platforms.paperspace_api.api" in sys.modules:  # another world may get this one's port and ids
            sys.modules["sweepstack.platforms.paperspace_api.api"].forget()
        self.sim.check()
