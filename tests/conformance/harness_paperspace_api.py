"""How to break Paperspace's API: its simulator on loopback, whose ledger says what is true."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from sweepstack.extensions.paperspace_api import power
from sweepstack.onbox.host.platform import BoxRequest
from sweepstack.platforms.common.box_session import FRESH_SECONDS
from tests.conformance.rental_harness import KINDS, RentalHarness, played
from tests.simulators.core import VirtualClock
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


class Harness(RentalHarness):
    """See `harness.Harness`."""

    adapter = "paperspace_api"
    spawns = False
    """Nothing stands behind a machine of the simulator."""
    price = 0.76
    """What the stack file says, and what an A4000 of the simulator says of itself."""
    kept_by_stop = ("scratch", "data", "mnt/durable")
    """All that lies on a machine's one disk, by the vendor's pages: the simulator has no disks."""
    secrets = (KEY, OTHER_KEY)
    proved_by = "tests/extensions/paperspace_api/test_paperspace_api_platform.py: each answer of Paperspace by itself"
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
    kinds = KINDS | {
        "out_of_capacity": ("out_of_capacity", {}),
        "low_balance": ("bad_standing", {}),
        "never_ready": ("stuck", {}),
        "dies_while_starting": ("start_fails", {}),
        "odd_status": ("odd_status", {"status": "migrating", "reads": 3}),
        "delete_lingers": ("delete_lingers", {"seconds": 0.5}),
        "delete_stays": ("ignored", {}),
        "no_room": ("start_fails", {}),
    }
    plays = played(kinds)
    impossible = frozenset(
        {
            "says_no",  # its errors have a status
            "zero_gpus",  # a machine keeps its type, and starts with its cards or not at all
            "refused_yet_made",  # there are no spot boxes, so no bids
        }
    )
    box, url, key = "machine", "PAPERSPACE_API_BASE_URL", "PAPERSPACE_API_KEY"
    where: ClassVar = {"create": (CREATE,), "read": (READS,), "delete": (DELETE,), "start": (START,)}
    elsewhere: ClassVar = {
        "stale_list": (LIST,),
        "no_key": ("* /v1/*",),
        "low_balance": (CREATE, "GET /v1/billing/account-standing"),
        "dies_while_starting": (START,),
        "vanished": (GET, DELETE),
    }
    at_once: ClassVar = {"preempted": "power_off", "vanished": "vanish"}
    fresh = FRESH_SECONDS
    limits = ((power, "GONE_SECONDS", 100.0),)  # at the pace of tests a second: some ends never come
    cache = "sweepstack.extensions.paperspace_api.api:SESSIONS.forget"

    def simulator(self, state: Path, machines: bool) -> PaperspaceSim:
        return PaperspaceSim(clock=VirtualClock(scale=1.0), times=AT_ONCE)

    def request(self, tag: str, **changes: Any) -> BoxRequest:
        resources = {"gpu": {"name": ["A4000"], "count": 1}}
        return super().request(tag, **{"price_per_hour": self.price, "resources": resources, **changes})

    def slow_boot(self, seconds: float) -> None:
        self.sim.machines.times = Times(0, 0, seconds, 0, 0, reads=1)  # it can be stopped meanwhile

    def make_unreadable(self, native_id: str) -> None:
        self.sim.faults.add("odd_status", READS, times=None, status="transcended", reads=10**9)
        self.outlive()

    def mend(self) -> None:
        self.sim.machines.times = AT_ONCE
        for one in self.sim.machines.all.values():
            one.odd_status, one.stuck = None, ""
