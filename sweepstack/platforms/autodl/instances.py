"""Pro instances: which one is behind an address, what it does, and its 关机.

No other instance is in the API. Source: www.autodl.com/docs/instance_pro_api, read 2026-11. Nothing is rented, started
or released here.
"""

from __future__ import annotations

from typing import Any

from sweepstack.onbox.common.errors import OutcomeUnknown, Unreachable
from sweepstack.onbox.host.capabilities import ListedHost
from sweepstack.platforms.autodl.api import Api
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.rate_limit import paced

OFF = frozenset({"shutdown", "stopped"})
GONE = frozenset({"removed"})
PAGE, MOST_PAGES = 50, 20
OFF_SECONDS, POLL_SECONDS = 180.0, 5.0


def host_at(api: Api, host: str, port: int) -> ListedHost | None:
    """The Pro instance at this address; None where there is none. Asks for each instance of the account. Raises
    PlatformError, and Unreachable where a list or an instance does not read: then nothing is known."""
    found: list[ListedHost] = []
    for row in _rows(api):
        id, state = row.get("uuid"), row.get("status")
        if not isinstance(id, str) or not id or not isinstance(state, str):
            raise Unreachable("AutoDL's list of Pro instances can't be read: one has no id or no status")
        if state in GONE:
            continue
        told = api.snapshot(id)
        if (told.get("proxy_host"), told.get("ssh_port")) == (host, port):
            found.append(ListedHost(id, state, state in OFF))
    if len(found) > 1:
        raise Unreachable(f"AutoDL shows {len(found)} Pro instances at {host}:{port}")
    return found[0] if found else None


def power_off(api: Api, id: str) -> None:
    """关机 of this instance; blocks until AutoDL says that it is off. Idempotent. Raises OutcomeUnknown when that is
    not so in time; another PlatformError for a refusal."""
    deadline = Deadline(paced(OFF_SECONDS))
    state = api.status(id)
    if state not in OFF:
        api.power_off(id)
    while (state := api.status(id)) not in OFF:
        if deadline.left() <= paced(POLL_SECONDS):
            raise OutcomeUnknown(f"AutoDL took the 关机 of {id}, and still says that it is {state}: it may bill")
        deadline.pause(paced(POLL_SECONDS))


def _rows(api: Api) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number in range(1, MOST_PAGES + 1):
        page = api.instances(number, PAGE)
        listed, pages, total = page.get("list"), page.get("max_page"), page.get("result_total")
        if not isinstance(listed, list) or not all(isinstance(row, dict) for row in listed):
            raise Unreachable("AutoDL's list of Pro instances can't be read")
        rows += listed
        if not isinstance(pages, int) or number >= pages or not listed:
            if isinstance(total, int) and len(rows) < total:
                raise Unreachable(f"AutoDL's list of Pro instances has {len(rows)} of {total}")
            return rows
    raise Unreachable(f"AutoDL lists more than {PAGE * MOST_PAGES} Pro instances")
