"""A box of vast.ai in an account with thousands of other instances: each verb asks for that box alone.

A list takes a second of the account's pace and 25 rows a page, and a look at a box has 20 s (`SECONDS`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.host.platform import BoxRequest, Phase, Wait
from sweepstack.platforms.common import reach_box
from sweepstack.platforms.vastai import api, power
from sweepstack.platforms.vastai.api import QUOTAS, forget
from sweepstack.platforms.vastai.platform import VastPlatform
from tests.at_once import at_once
from tests.simulators.core import SimServer, VirtualClock
from tests.simulators.vastai import Machine, VastSimulator

ACCOUNT = "5000"
TAG = "sweepstack-a1b2c3-box-0-g1"
LIST = "GET /api/v1/instances/"
MOST = 4
"""Lists of any verb that does not wait for something. One takes a second of the pace that vast.ai allows."""


@pytest.fixture(params=[500, pytest.param(5000, marks=pytest.mark.proof)])  # 500 have 20 pages, and MOST is 4 lists
def sim(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[VastSimulator]:
    sim = VastSimulator(clock=VirtualClock(scale=1.0))
    key = sim.add_account("ann").key
    sim.world.market.add(Machine(1, 11))
    sim.act("strangers", {"account": ACCOUNT, "count": request.param})
    sim.act("set", {"boot_seconds": 0.0, "by_itself": 5.0})
    with SimServer(sim) as server:
        for name, value in {
            "VAST_URL": server.url,
            "VAST_API_KEY": key,
            "SWEEPSTACK_API_PACE": "0.01",
            "XDG_DATA_HOME": str(tmp_path),
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(reach_box, "ON", False)
        # In the time of tests it is half a second, and a busy machine takes longer for a list of 5000.
        monkeypatch.setattr(power, "STOP_SECONDS", 6000.0)
        monkeypatch.setattr(power, "GONE_SECONDS", 6000.0)
        yield sim
    forget()
    sim.check()


def lists(sim: VastSimulator) -> int:
    """Pages of lists that were asked for since the last time; what this process has read is forgotten."""
    count = sum(call.route == LIST.partition(" ")[2] and call.method == "GET" for call in sim.calls)
    sim.calls.clear()
    forget()
    return count


def test_each_verb_asks_for_its_own_box_among_thousands(sim: VastSimulator) -> None:
    platform = VastPlatform()
    made = platform.create(BoxRequest(tag=TAG, name="box-0", public_key="ssh-ed25519 AAAA x"), wait=Wait(60))
    assert lists(sim) <= 2 * MOST  # it is looked for, rented, and waited for
    assert platform.get(made.native_id, ACCOUNT).phase is Phase.RUNNING
    assert lists(sim) == 1
    found = platform.find_by_tag(TAG, ACCOUNT)
    assert found is not None
    assert found.native_id == made.native_id
    assert lists(sim) == 1
    assert platform.find_by_tag(f"{TAG}0", ACCOUNT) is None
    assert lists(sim) <= MOST
    assert [record.native_id for record in platform.list_tagged("sweepstack-")] == [made.native_id]
    assert platform.list_tagged("sweepstack-other") == []
    assert lists(sim) <= 3
    platform.stop(made.native_id, ACCOUNT)
    assert lists(sim) <= MOST
    platform.start(made.native_id, ACCOUNT, wait=Wait(60))
    assert lists(sim) <= 2 * MOST
    platform.destroy(made.native_id, ACCOUNT)
    assert platform.get(made.native_id, ACCOUNT).phase is Phase.GONE
    assert lists(sim) <= MOST
    assert MOST * QUOTAS["list"].seconds < 20


@pytest.mark.parametrize("sim", [500], indirect=True)
def test_boxes_that_are_looked_at_at_once_share_a_list(sim: VastSimulator, unhurried: None) -> None:
    """One, although they come one after the other: each that came after a list was begun would need another."""
    look_at(sim.act("strangers", {"account": ACCOUNT, "count": 20}))
    assert lists(sim) == 1


@pytest.mark.parametrize("sim", [40], indirect=True)
def test_a_list_of_most_of_the_account_is_one_of_all(sim: VastSimulator, unhurried: None) -> None:
    """It takes as many pages, and answers what else a preview asks."""
    look_at(sim.act("strangers", {"account": ACCOUNT, "count": 30}))
    assert len(VastPlatform().list_tagged("sweepstack-")) == 0
    assert lists(sim) == 1 + 3  # its first page tells that the 70 are more than the two pages of 30; then labels
    look_at(sorted(sim.world.instances)[-60:])
    assert len(VastPlatform().list_tagged("")) == 70
    assert lists(sim) == 3


def look_at(numbers: list[int]) -> None:
    """All at once, as a preview does."""
    platform = VastPlatform()
    at_once(lambda number: platform.get(str(number), ACCOUNT), numbers)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy this machine is: they count as at once within two seconds, and a list is young for longer."""
    monkeypatch.setattr(api, "GATHER_SECONDS", 200.0)
    monkeypatch.setattr(api, "MOST_GATHER_SECONDS", 6000.0)
    monkeypatch.setattr(api, "LATELY_SECONDS", 12_000.0)
    monkeypatch.setattr("sweepstack.platforms.vastai.platform.READ_AGE_SECONDS", 12_000.0)


@pytest.mark.parametrize("sim", [500], indirect=True)
def test_a_label_that_is_counted_and_not_listed_is_unknown(sim: VastSimulator) -> None:
    """Two answers have to agree that there is no box: what is rented twice is rented for having believed one."""
    sim.act("rent", {"account": ACCOUNT, "offer": next(iter(sim.world.market.offers)), "label": TAG})
    sim.faults.add("empty_list", LIST, times=None, filtered=True)
    platform = VastPlatform()
    for ask in (lambda: platform.find_by_tag(TAG, ACCOUNT), lambda: platform.list_tagged("sweepstack-")):
        with pytest.raises(Unreachable, match=f"counts an instance with the label {TAG} and lists none"):
            ask()
