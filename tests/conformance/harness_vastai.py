"""How to break vast.ai: its simulator on loopback, whose ledger says what is true."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.host.platform import BoxRequest, Platform, VolumeRecord
from sweepstack.platforms.registry import load_platform
from sweepstack.platforms.vastai import power, volumes
from tests.conformance.harness import FAULTS, created_at_once
from tests.simulators.core import SimServer, VirtualClock
from tests.simulators.vastai import Machine, VastSimulator

CREATE, DELETE = "PUT /api/v0/asks/{id}/", "DELETE /api/v0/instances/{id}/"
LIST, ONE, READS = "GET /api/v1/instances/", "GET /api/v0/instances/{id}/", "GET /api/v[01]/instances/*"
START = "PUT /api/v0/instances/{id}/"
WHERE = {"create": (CREATE,), "read": (READS,), "delete": (DELETE,), "start": (START,), "spot": (CREATE,)}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "too_many": ("too_many", {}),
    "too_many_retry_after": ("too_many", {"retry_after": 1}),
    "error_before": ("error_before", {"status": 503}),
    "error_after": ("error_after", {"status": 502}),
    "lost_request": ("lost_request", {"reset": True}),
    "lost_answer": ("lost_answer", {}),
    "hang_before": ("hang_before", {}),
    "hang_after": ("hang_after", {}),
    "truncated": ("truncated", {}),
    "html": ("html_before", {"status": 502}),
    "html_ok": ("html_ok", {}),
    "no_key": ("auth", {"status": 404}),  # as seen live, where a 404 also says "no such instance"
    "stale_list": ("stale_list", {"seconds": 60}),
    "out_of_capacity": ("snatched", {}),
    "low_balance": ("lacks_credit", {}),
    "never_ready": ("stuck", {}),
    "dies_while_starting": ("dies", {}),
    "preempted": ("preempted", {}),
    "vanished": ("vanished", {}),
    "odd_status": ("odd_status", {"word": "migrating"}),
    "delete_lingers": ("destroy_slow", {"reads": 3}),
    "delete_stays": ("destroy_ignored", {}),
    "no_room": ("start_queued", {"seconds": 10**6}),
    "says_no": ("success_false", {}),
    "refused_yet_made": ("bid_refused", {}),
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
    "says_no": ("create", "delete"),
    "refused_yet_made": ("spot",),
}
ELSEWHERE = {"stale_list": (LIST,), "odd_status": (READS,), "no_key": ("*",)}
CACHE_SECONDS = 0.25
"""What the adapter has read serves it for 8 s, and whose key it is for 20 s; at the pace of tests 0.08 and 0.2."""
LIMITS = (
    *((power, name) for name in ("GONE_SECONDS", "STOP_SECONDS")),
    *((volumes, name) for name in ("_GONE_SECONDS", "RELEASE_SECONDS")),
)
NEVER_ENDS = ("delete_stays", "odd_status")
"""Where the adapter waits for an end until it must not any more."""
TIMEOUT = "30"
"""Seconds for an answer: it may wait for the machine that it starts, and for its turn on this one."""
VOLUME_GB = 10
MIN_BID = 0.20  # USD an hour and GPU


class Harness:
    """See `harness.Harness`. Hosts of one and two GPUs; the clock runs, limits are off."""

    adapter = "vastai"
    host = False
    wire = True
    price = None
    killed_by_stop: tuple[str, ...] = ()
    kept_by_stop = ("scratch", "data", "mnt/durable")
    plays = frozenset(
        {(fault, verb) for fault in KINDS for verb in ONLY.get(fault, ("create", "read", "delete"))}
        | {("foreign_account", "read"), ("foreign_account", "delete")}  # a create belongs to the account at hand
    )
    impossible = frozenset({"zero_gpus"})  # a start gets all its cards, or waits for them

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machines: bool) -> None:
        self._patch, self._machines = monkeypatch, machines
        key = tmp_path / "id_ed25519"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        self._public_key = key.with_suffix(".pub").read_text().strip()
        self.sim = VastSimulator(clock=VirtualClock(scale=1.0), state=tmp_path / "vastai", machines=machines)
        self._key, self._other = (self.sim.add_account(name).key for name in ("ann", "bob"))
        for number in range(1, 7):
            self.sim.world.market.add(
                Machine(number, 10 + number, gpus=1 + number % 2, dph=0.30 + number / 100, min_bid=MIN_BID)
            )
        self.secrets = (self._key, self._other)
        self._brisk()
        self._odd: set[int] = set()
        self._server = SimServer(self.sim)
        for name, value in {
            "HOME": str(tmp_path),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "XDG_DATA_HOME": str(tmp_path / "share"),
            "VAST_URL": self._server.url,
            "VAST_API_KEY": self._key,
            "SWEEPSTACK_SSH_KEY": str(key),
            "SWEEPSTACK_API_PACE": "0.01",
            "SWEEPSTACK_API_TIMEOUT": TIMEOUT,
        }.items():
            monkeypatch.setenv(name, value)
        if not machines:  # nothing would answer: what the API says is enough
            monkeypatch.setattr("sweepstack.platforms.common.probe.ON", False)

    def _brisk(self) -> None:
        """Every stage is seen once, and nothing that takes time takes long."""
        self.sim.act("set", {"boot_seconds": 0.0, "volume_release": 0.3, "by_itself": 5.0})
        # At the pace of tests each is less than a second, and a busy machine takes longer.
        for module, name in LIMITS:
            self._patch.setattr(module, name, 6000.0)

    def connect(self) -> Platform:
        return load_platform(self.adapter)

    def request(self, tag: str, **changes: Any) -> BoxRequest:
        return BoxRequest(**{"tag": tag, "name": "box-0", "public_key": self._public_key, **changes})

    def volume(self, platform: Platform, tag: str) -> VolumeRecord:
        return platform.ensure_volume(tag, "durable", size_gb=VOLUME_GB, region="machine:1")

    def rentals(self) -> set[str]:
        with self.sim.lock:
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
        if kind.startswith(
            "hang"
        ):  # an answer never comes, or the next attempt brings it: neither is worth a long wait
            self._patch.setenv("SWEEPSTACK_API_TIMEOUT", "0.5" if verb == "read" and times is None else "2")
        if fault in NEVER_ENDS:
            self._patch.setattr(power, "GONE_SECONDS", 90.0)
        if fault == "refused_yet_made":  # with an error's status, or with that of a success
            self.sim.act("set", {"bid_refused_status": 200 if times is None else 400})
        for place in ELSEWHERE.get(fault, WHERE[verb]):
            self.sim.faults.add(kind, place, times=times, **params)
        if verb == "read":
            time.sleep(CACHE_SECONDS)

    def outbid(self, native_id: str) -> None:
        self.sim.act("outbid", {"id": native_id})

    def slow_boot(self, seconds: float) -> None:
        self.sim.act("set", {"boot_seconds": seconds})

    def lose_answers(self) -> None:
        self.sim.faults.add("lost_answer", CREATE, times=None)

    def fail_late(self) -> None:
        self.sim.faults.add("error_after", CREATE, times=None, status=502)

    def make_unreadable(self, native_id: str) -> None:
        self._odd.add(int(native_id))
        self.sim.act("die", {"id": native_id, "word": "transcended"})
        time.sleep(CACHE_SECONDS)

    def make_foreign(self) -> None:
        self._patch.setenv("VAST_API_KEY", self._other)

    def cut_off(self) -> None:
        self.sim.faults.add("lost_request", times=None)
        time.sleep(CACHE_SECONDS)

    def remove_by_hand(self, native_id: str) -> None:
        self.sim.act("vanish", {"id": native_id})
        time.sleep(CACHE_SECONDS)

    def repair(self) -> None:
        self.sim.faults.clear()
        self._patch.setenv("SWEEPSTACK_API_TIMEOUT", TIMEOUT)
        self._patch.setenv("VAST_API_KEY", self._key)
        self._brisk()
        for machine in list(self.sim.world.market.machines):
            self.sim.act("free", {"machine": machine})
            self.sim.act("price", {"machine": machine, "min_bid": MIN_BID})
        for number in self._odd:
            self.sim.act("die", {"id": number, "word": "running"})
        self._odd.clear()
        time.sleep(CACHE_SECONDS)

    def create_at_once(self, request: BoxRequest, count: int) -> set[str]:
        return created_at_once(self.adapter, request, count, machines=self._machines)

    def close(self) -> None:
        self._server.close()
        if "sweepstack.platforms.vastai.account_state" in sys.modules:  # another world may get this one's port and ids
            sys.modules["sweepstack.platforms.vastai.account_state"].forget()
        self.sim.check()
