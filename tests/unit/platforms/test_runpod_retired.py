"""RunPod once its older interface (GraphQL) answers 410, on the simulator: whose key it is, what proves an end, and
what can't be had any more. A whole sweep: `tests/rented/test_retired.py`; all of the conformance suite: `make proof`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sweepstack.onbox.common.errors import NotYetGone, RateLimited, Unproved, Unreachable, Unsupported, WrongAccount
from sweepstack.onbox.host.offers import Constraints
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.runpod import api
from sweepstack.platforms.runpod import balance as balance_module
from sweepstack.platforms.runpod.api import session
from sweepstack.platforms.runpod.platform import RunpodPlatform
from tests.simulators.runpod import DELETE, GRAPHQL, KEY, OTHER_KEY, Boot, RunPodSim
from tests.unit.platforms.api_world import quick, sent, serving

ANN = "user_ann"
TAG = "sweepstack-a1b2c3-box-0-g1"
ACCOUNT = "GET /v2/account"
HOUR = 3600.0
passed = [0.0]
"""Seconds on the clock by which a bill stands still. They go on from test to test."""


def stand_still() -> None:
    passed[0] = math.ceil(passed[0] + paced(balance_module.STILL_SECONDS))  # whole: a sum of fractions can fall short


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[RunPodSim]:
    """With GraphQL, until `retire`."""
    quick(monkeypatch, tmp_path, api.KEY_VARIABLE, KEY)
    monkeypatch.setattr(balance_module, "BILL_SECONDS", 0.0)
    monkeypatch.setattr(balance_module, "time", SimpleNamespace(monotonic=lambda: passed[0]))
    with serving(RunPodSim(boot=Boot(reads=0)), monkeypatch, api.BASE_VARIABLE) as sim:
        yield sim
    api.SESSIONS.forget()


def retire(sim: RunPodSim, *, tells: bool = True) -> RunpodPlatform:
    """GraphQL is gone, and a command begins. `tells`: REST v2 says whose key it is."""
    sim.faults.add("retired", GRAPHQL, times=None)
    if not tells:
        sim.faults.add("no_account", ACCOUNT, times=None)
    return later()


def later() -> RunpodPlatform:
    """The next command, in a process of its own."""
    api.SESSIONS.forget()
    return RunpodPlatform()


def vanish(sim: RunPodSim, box: BoxRecord) -> None:
    """It ends behind our back, and the list that was just read shows it no more."""
    sim.act("vanish", {"id": box.native_id})
    session().forget_pods()


def rent(platform: RunpodPlatform, tag: str = TAG) -> BoxRecord:
    return platform.create(BoxRequest(tag=tag, name="box-0", public_key="ssh-ed25519 AAAA x"), wait=Wait(60))


@pytest.mark.parametrize("tells", [True, False])
def test_a_box_lives_and_ends_without_graphql(sim: RunPodSim, tells: bool) -> None:
    platform = retire(sim, tells=tells)
    box = rent(platform)
    assert box.account == (ANN if tells else f"key-{platform.key_digest()}")
    assert KEY not in box.account
    sim.clock.advance(600)
    assert platform.get(box.native_id, box.account).phase is Phase.RUNNING
    platform.stop(box.native_id, box.account)
    platform.start(box.native_id, box.account, wait=Wait(60))
    found = later().find_by_tag(TAG, box.account)
    assert found is not None
    platform = later()
    with pytest.raises(NotYetGone, match=r"no pod .* neither by its id nor in its list.*must stand still") as waits:
        platform.destroy(box.native_id, box.account)
    assert waits.value.within > waits.value.pause
    assert sim.ledger.live("pod") == [], "the delete was sent; it is not proved"
    stand_still()
    platform.destroy(box.native_id, box.account)
    assert platform.get(box.native_id, box.account).phase is Phase.GONE
    assert sent(sim, DELETE) == 1, "one that only the bill still has to prove is not asked to end again"
    assert sent(sim, "POST /graphql") == 3, "one request for each command: a 410 is remembered, and never tried again"


@pytest.mark.parametrize("tells", [True, False])
def test_a_box_that_was_rented_before_ends_without_graphql(sim: RunPodSim, tells: bool) -> None:
    """Its records hold the account that GraphQL named, and, where an older version wrote them, no digest of a key."""
    box = rent(RunpodPlatform())
    assert box.account == ANN
    sim.clock.advance(HOUR)
    platform = retire(sim, tells=tells)
    seen = platform.get(box.native_id, ANN)
    assert (seen.phase, seen.account) == (Phase.RUNNING, ANN), "the key shows the recorded box by its id"
    with pytest.raises(NotYetGone):
        later().destroy(box.native_id, ANN)
    assert sim.ledger.live("pod") == []
    sim.clock.advance(3 * HOUR)
    assert later().get(box.native_id, ANN).phase is Phase.GONE, "the bill proves the account, too"


def test_an_end_is_what_the_bill_shows_and_nothing_less(sim: RunPodSim) -> None:
    """404 and the list are one source. Charges come every five minutes, and later only the older bill has them."""
    sim.bill_every = 300.0
    box = rent(RunpodPlatform())
    platform = retire(sim)
    vanish(sim, box)
    with pytest.raises(Unproved, match="does not know the pod") as raised:
        platform.get(box.native_id, ANN)
    assert raised.value.same_account
    other = rent(platform, f"{TAG}0")
    sim.clock.advance(450)
    vanish(sim, other)
    for _ in range(2):
        with pytest.raises(Unproved, match="must stand still"):
            platform.get(other.native_id, ANN)
    stand_still()
    sim.clock.advance(300)  # its last charges are posted
    with pytest.raises(Unproved, match="must stand still"):
        platform.get(other.native_id, ANN)
    stand_still()
    assert platform.get(other.native_id, ANN).phase is Phase.GONE
    with pytest.raises(Unproved):
        later().get(other.native_id, ANN)
    for hours in (2, 60):
        sim.clock.advance(hours * HOUR)
        assert later().get(other.native_id, ANN).phase is Phase.GONE
    sim.faults.add("error_before", "GET /v2/billing/pods", times=None)
    with pytest.raises(Unreachable):
        later().get(other.native_id, ANN)


@pytest.mark.parametrize("tells", [True, False])
def test_another_accounts_key_proves_nothing_and_ends_nothing(
    sim: RunPodSim, monkeypatch: pytest.MonkeyPatch, tells: bool
) -> None:
    box = rent(RunpodPlatform())
    sim.clock.advance(HOUR)
    monkeypatch.setenv(api.KEY_VARIABLE, OTHER_KEY)
    platform = retire(sim, tells=tells)
    for ask in (platform.get, platform.destroy, platform.stop, platform.channel):
        with pytest.raises(WrongAccount if tells else Unproved) as raised:
            ask(box.native_id, ANN)
        assert not getattr(raised.value, "same_account", False), "a record that says ended is not confirmed by it"
    with pytest.raises(WrongAccount if tells else Unproved, match=ANN):
        platform.find_by_tag(TAG, ANN)
    assert sent(sim, DELETE) == 0


def test_an_absent_tag_is_proved_by_the_key_that_asked_for_it(sim: RunPodSim) -> None:
    platform = retire(sim, tells=False)
    with pytest.raises(Unproved, match="use the key that rented it"):
        platform.find_by_tag(TAG, ANN)
    platform.recall(ANN, "0123456789abcdef")
    with pytest.raises(Unproved):
        platform.find_by_tag(TAG, ANN)
    platform.recall(ANN, platform.key_digest())
    assert platform.find_by_tag(TAG, ANN) is None


@pytest.mark.parametrize(("fault", "kind"), [("error_before", Unreachable), ("too_many", RateLimited)])
def test_an_outage_is_no_retirement(sim: RunPodSim, fault: str, kind: type[Exception]) -> None:
    box = rent(RunpodPlatform())
    sim.faults.add(fault, GRAPHQL, times=None)
    platform = later()
    with pytest.raises(kind):
        platform.get(box.native_id, ANN)
    assert not session().retired
    assert sent(sim, ACCOUNT) == 0
    sim.faults.clear()
    assert platform.get(box.native_id, ANN).phase is Phase.RUNNING


def test_while_graphql_answers_it_is_the_second_source(sim: RunPodSim) -> None:
    """What REST hides and GraphQL shows is not gone, whatever the bill says."""
    box = rent(RunpodPlatform())
    sim.clock.advance(HOUR)
    sim.act("set", {"id": box.native_id, "hidden": 9, "hidden_in_list": True})
    with pytest.raises(Unreachable, match="its older one shows it"):
        later().get(box.native_id, ANN)
    assert sent(sim, "GET /v2/billing/pods") == 0


def test_what_has_no_form_in_rest_v2_says_so(sim: RunPodSim) -> None:
    request = BoxRequest(tag=TAG, name="box-0", public_key="ssh-ed25519 AAAA x", resources={"spot": True})
    box = RunpodPlatform().create(request, wait=Wait(60))
    sim.act("preempt", {"id": box.native_id})
    platform = retire(sim)
    with pytest.raises(Unsupported, match=r"REST v2 knows no bids.* none was.*`spot: false`"):
        platform.offers(Constraints(gpu_count=1, spot=True))
    seen = platform.get(box.native_id, ANN)
    assert "stands still for good" in seen.note
    for ask in (
        lambda: platform.start(box.native_id, ANN, wait=Wait(9)),
        lambda: platform.change_bid(box.native_id, ANN, 0.9),
    ):
        with pytest.raises(Unsupported, match=r"can't be started again.*sweepctl give-up data/"):
            ask()
    assert len(platform.offers(Constraints(gpu_count=1))) > 1


@pytest.mark.parametrize("tells", [True, False])
def test_a_volume_outlives_graphql_and_can_end(sim: RunPodSim, monkeypatch: pytest.MonkeyPatch, tells: bool) -> None:
    volume = RunpodPlatform().ensure_volume("sweepstack-a1b2c3-v", "v", size_gb=10, region="EU-RO-1").native_id
    platform = retire(sim, tells=tells)
    monkeypatch.setenv(api.KEY_VARIABLE, OTHER_KEY)
    with pytest.raises(WrongAccount if tells else Unproved):
        later().delete_volume(volume, ANN)
    monkeypatch.setenv(api.KEY_VARIABLE, KEY)
    assert platform.get_volume(volume) is not None
    platform.delete_volume(volume, ANN)
    assert platform.get_volume(volume) is None


def test_the_balance_is_told_by_rest_v2_alone(sim: RunPodSim) -> None:
    balance = retire(sim).balance()
    assert balance is not None
    assert (balance.usd, balance.per_hour) == (1000.0, None)
    sim.faults.add("error_before", "GET /v2/billing/balance", times=None, status=404)
    with pytest.raises(Unreachable, match="older interface is retired"):
        RunpodPlatform().balance()
