"""Customers of the simulated vast.ai; how its world behaves where the real one varies or the facts leave it open."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulators.core import Account

DAY = 86400.0
SCOPES = frozenset(
    ["instance_read", "instance_write", "user_read", "user_write", "billing_read", "billing_write", "misc"]
)


@dataclass
class VastAccount(Account):
    """A customer. `keys`: API key → scopes, beside `key`, which has all; `ssh_keys`: id → public key.

    `host`: it owns machines, and may rent nobody else's.
    """

    keys: dict[str, frozenset[str]] = field(default_factory=dict)
    ssh_keys: dict[int, str] = field(default_factory=dict)
    host: bool = False
    broke_since: float | None = None


@dataclass
class Settings:
    """How this world behaves where the real one varies, or where the facts leave it open. Seconds are virtual."""

    boot_reads: int = 1  # looks that see each of null, created, loading
    boot_seconds: float = 0.0  # and not running before
    stop_reads: int = 1  # looks that still see it running after a stop
    start_reads: int = 1  # looks that still see `exited` after a start
    destroy_reads: int = 1  # looks that still see it after DELETE said 200
    get_forgets_first: bool = False  # after DELETE, GET says null while the list still shows it
    by_itself: float = 90.0  # what waits for a look happens by then without one
    volume_release: float = 30.0
    new_ports: bool = True  # at reboot and start
    newline: bool = True  # public_ipaddr ends with one
    stopped_word: str = "exited"
    bad_key_status: int = 401  # or 404, as seen live
    bid_refused_status: int = 400  # or 200
    delete_missing: str = "not_found"  # or no_such_instance
    volume_id_told: bool = False  # PUT /volumes/ also says volume_id
    broke_grace: float = DAY  # stopped for want of credit → destroyed
    page: int = 25
    limits: bool = False  # the minimum intervals of LIMITS: on a clock that stands still nothing would ever pass
    retry_after: bool = False  # with the 429 of a limit
