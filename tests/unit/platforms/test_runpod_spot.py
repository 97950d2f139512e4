"""RunPod's spot pods, against its simulator: one box for a bid, and words for each refusal."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.common.box_layout import RUNNER_PID
from sweepstack.onbox.common.errors import (
    InsufficientFunds,
    NoCapacity,
    NotAuthorized,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    StillCreating,
    Unsupported,
)
from sweepstack.onbox.host.offers import Constraints
from sweepstack.onbox.host.platform import BoxRecord, Phase, Told, Wait
from sweepstack.platforms.common.http_client import HttpAnswer
from sweepstack.platforms.runpod import create, offers
from sweepstack.platforms.runpod.platform import RunpodPlatform
from sweepstack.platforms.runpod.states import NOT_SAID, TAKEN, why_still
from tests.conformance.harness_runpod import Harness
from tests.simulators.runpod.spot import SPOT_CREATE, SPOT_RESUME

TAG = "me.sweep.box-0.g1"
SPOT: dict[str, Any] = {"spot": True, "gpu": {"name": ["RTX 4090"], "count": 2}}
DISKS = (20 + 20) * 0.10 / 730
REMOVED = 'Cannot query field "podRentInterruptable" on type "Mutation".'


@pytest.fixture
def runpod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    harness = Harness(tmp_path, monkeypatch, machines=False)
    yield harness
    harness.close()


def rent(runpod: Harness, **changes: Any) -> BoxRecord:
    asked = runpod.request(TAG, **{"resources": SPOT, **changes})
    return RunpodPlatform().create(asked, wait=Wait(60))


def look(record: BoxRecord) -> BoxRecord:
    return RunpodPlatform().get(record.native_id, record.account)


def floor_is(runpod: Harness, usd: float) -> None:
    runpod.sim.act("floor", {"gpu": "NVIDIA GeForce RTX 4090", "cloud": "SECURE", "usd": usd})
    runpod.outlive()


def bids(runpod: Harness) -> list[float | None]:
    return [pod.bid for pod in runpod.sim.pods.all.values()]


def test_what_is_offered_is_the_least_bid_or_the_one_that_is_asked_for(runpod: Harness) -> None:
    floor_is(runpod, 0.21)
    (least,) = RunpodPlatform().offers(Constraints.of(SPOT))
    assert (least.spot, least.gpu_count) == (True, 2)
    assert least.price_per_hour == pytest.approx(0.42 + DISKS, abs=1e-6)
    (asked,) = RunpodPlatform().offers(Constraints.of(SPOT, bid=0.5))
    assert asked.price_per_hour == pytest.approx(0.5 + DISKS, abs=1e-6)
    assert RunpodPlatform().offers(Constraints.of(SPOT, bid=0.4)) == [], "below the floor"
    assert RunpodPlatform().offers(Constraints.of(SPOT, max_price=0.41)) == []
    assert RunpodPlatform().offers(Constraints.of({**SPOT, "gpu": {"name": ["B200"], "count": 64}})) == []


def test_each_data_center_is_an_offer_of_its_own(runpod: Harness) -> None:
    found = RunpodPlatform().offers(Constraints.of({**SPOT, "regions": ["EU-RO-1", "US"]}))
    assert found
    assert all(offer.key == f"NVIDIA GeForce RTX 4090@{offer.region}" for offer in found)
    record = rent(runpod, resources={**SPOT, "regions": [found[-1].region]})
    assert record.region == found[-1].region


def test_a_bid_is_of_the_whole_box_and_never_above_the_ceiling(runpod: Harness) -> None:
    record = rent(runpod, bid=0.8, max_price=0.81)
    assert bids(runpod) == [0.4], "a bid is for the GPUs alone"
    assert record.price_per_hour == pytest.approx(0.8 + DISKS, abs=1e-6)
    assert RunpodPlatform().find_by_tag(TAG) == look(record)
    with pytest.raises(NoCapacity, match="none of 0 offers could be had; nothing was rented"):
        RunpodPlatform().create(
            runpod.request("me.sweep.box-1.g1", resources=SPOT, bid=0.8, max_price=0.7), wait=Wait(9)
        )
    assert len(runpod.rentals()) == 1


@pytest.mark.parametrize("fault", [("lost_answer", {}), ("error_after", {"status": 502}), ("truncated", {})])
def test_a_lost_answer_is_looked_up_and_nothing_is_rented_twice(runpod: Harness, fault: tuple[str, Any]) -> None:
    kind, params = fault
    runpod.sim.faults.add(kind, SPOT_CREATE, times=None, **params)
    record = rent(runpod)
    assert runpod.rentals() == {record.native_id}
    again = rent(runpod)
    assert (again.native_id, len(runpod.rentals())) == (record.native_id, 1)


def test_words_that_prove_nothing_leave_it_unknown(runpod: Harness) -> None:
    runpod.sim.faults.add("graphql_error", SPOT_CREATE)
    with pytest.raises(OutcomeUnknown, match="names no pod, so it may have made one: Something went wrong"):
        rent(runpod)


@pytest.mark.parametrize("status", [200, 400])
def test_an_interface_that_rents_none_any_more_is_named(runpod: Harness, status: int) -> None:
    runpod.sim.faults.add("spot_removed", SPOT_CREATE, times=None, status=status)
    with pytest.raises(Unsupported, match=r"does not take podRentInterruptable any more.*`spot: false`"):
        rent(runpod)
    assert runpod.rentals() == set()


def test_an_account_without_spot_is_no_dry_market(runpod: Harness) -> None:
    runpod.sim.faults.add("no_spot", SPOT_CREATE, times=None)
    with pytest.raises(NoCapacity) as caught:
        rent(runpod)
    assert "where spot is not enabled for the account" in str(caught.value)
    assert "spot: false" in str(caught.value)
    assert runpod.rentals() == set()


def test_a_pod_that_was_taken_is_preempted_and_one_that_was_stopped_is_not(runpod: Harness) -> None:
    record = rent(runpod)
    runpod.outbid(record.native_id)
    seen = look(record)
    assert (seen.phase, seen.note, seen.told) == (Phase.STOPPED, TAKEN, Told.PREEMPTED)
    runpod.repair()
    again = RunpodPlatform().start(record.native_id, record.account, wait=Wait(60))
    assert again.phase is Phase.RUNNING
    RunpodPlatform().stop(record.native_id, record.account)
    runpod.outlive()
    assert (look(record).note, look(record).told) == ("", None)


def test_a_start_offers_the_last_bid_and_says_which_one_would_do(runpod: Harness) -> None:
    record = rent(runpod, bid=0.8)
    runpod.outbid(record.native_id)
    floor_is(runpod, 0.55)
    with pytest.raises(NoCapacity, match=r"Set `bid` to 1\.1000 USD/h or more, then pulumi up"):
        RunpodPlatform().start(record.native_id, record.account, wait=Wait(9))
    RunpodPlatform().change_bid(record.native_id, record.account, 1.2)
    assert bids(runpod) == [0.6]
    runpod.outbid(record.native_id)
    floor_is(runpod, 0.6)
    RunpodPlatform().start(record.native_id, record.account, wait=Wait(60))
    assert bids(runpod) == [0.6], "the bid that it had last, not the one that it was rented for"


@pytest.mark.parametrize("fault", ["lost_answer", "error_after"])
def test_a_resume_whose_answer_is_lost_is_looked_up(runpod: Harness, fault: str) -> None:
    record = rent(runpod)
    runpod.sim.act("preempt", {"id": record.native_id})
    runpod.outlive()
    runpod.sim.faults.add(fault, SPOT_RESUME)
    assert RunpodPlatform().start(record.native_id, record.account, wait=Wait(60)).phase is Phase.RUNNING


def test_a_bid_is_changed_only_where_the_platform_takes_one(runpod: Harness) -> None:
    record = rent(runpod, bid=0.8)
    platform = RunpodPlatform()
    platform.change_bid(record.native_id, record.account, 0.8)
    with pytest.raises(RequestRefused, match=r"only for a pod that it has taken away, and .* is running"):
        platform.change_bid(record.native_id, record.account, 0.9)
    platform.stop(record.native_id, record.account)
    runpod.outlive()
    with pytest.raises(RequestRefused, match="is stopped"):
        platform.change_bid(record.native_id, record.account, 0.9)
    assert look(record).phase is Phase.STOPPED, "who stopped it pays for nothing"


def test_a_resume_that_comes_to_nothing_leaves_it_as_it_is(runpod: Harness) -> None:
    record = rent(runpod)
    runpod.sim.act("preempt", {"id": record.native_id})
    runpod.outlive()
    runpod.sim.faults.add("spot_removed", SPOT_RESUME, times=None)
    with pytest.raises((PlatformError, StillCreating), match="podBidResume any more"):
        RunpodPlatform().start(record.native_id, record.account, wait=Wait(9))
    assert look(record).phase is Phase.STOPPED


def test_a_volume_is_mounted_in_its_data_center(runpod: Harness) -> None:
    platform = RunpodPlatform()
    volume = runpod.volume(platform, "me.sweep.v1")
    record = rent(runpod, mounts={"mnt/durable": volume.native_id})
    assert record.region == volume.region
    assert rent(runpod, mounts={"mnt/durable": volume.native_id}).native_id == record.native_id


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (200, "There are no instances available with the request specifications.", NoCapacity),
        (200, "This machine does not have the resources to deploy this pod", NoCapacity),
        (200, "Insufficient balance to resume this pod", InsufficientFunds),
        (400, REMOVED, Unsupported),
        (404, "", Unsupported),
        (403, "access denied", NotAuthorized),
        (200, "Unauthorized", NotAuthorized),
        (200, "Cannot resume a spot pod as an on demand pod.", RequestRefused),
        (400, "Syntax Error: Expected Name", RequestRefused),
        (200, "Something went wrong. Please try again later or contact support.", OutcomeUnknown),
        (200, "words of tomorrow", OutcomeUnknown),
        (200, "", OutcomeUnknown),
    ],
)
def test_each_refusal_is_what_it_says_and_new_words_prove_nothing(
    status: int, text: str, kind: type[Exception]
) -> None:
    try:
        said: Exception = offers._spot_refusal(HttpAnswer(status, {}, text), offers.RENT, "a spot pod")
    except PlatformError as error:
        said = error
    assert type(said) is kind


def test_a_literal_can_not_be_left_by_any_text() -> None:
    text = 'a"b\\c\nd{e}$f é \u2028'
    told = offers._literal({"name": text, "on": True, "n": 2, "bid": 0.25, "cloud": offers.Word("SECURE"), "l": ["x"]})
    assert told == ('{name: "a\\"b\\\\c\\nd{e}$f \\u00e9 \\u2028", on: true, n: 2, bid: 0.25, cloud: SECURE, l: ["x"]}')


@pytest.mark.parametrize(
    ("price", "count", "each"), [(0.8, 2, 0.4), (0.29, 1, 0.29), (1.0, 3, 0.3333), (0.07, 7, 0.01)]
)
def test_a_bid_for_each_gpu_never_comes_to_more_than_the_price(price: float, count: int, each: float) -> None:
    assert offers.per_gpu(price, count) == each


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ("Exited by Runpod: Mon", TAKEN),
        ("Exited by RunPod: Mon", TAKEN),
        ("Exited by user: Mon", ""),
        ("Rented by User: Mon", NOT_SAID),
        (None, NOT_SAID),
    ],
)
def test_why_it_stands_still(change: str | None, note: str) -> None:
    assert why_still(change) == note


def test_the_start_command_passes_the_signal_on_and_waits_for_the_runner(tmp_path: Path) -> None:
    """RunPod's signal reaches the container's first process alone: with that the container would end."""
    shell = shutil.which("sh")
    assert shell is not None
    pid = tmp_path / RUNNER_PID
    pid.parent.mkdir(parents=True)
    runner = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import signal, sys; signal.signal(15, lambda *_: sys.exit(7)); print(1, flush=True); signal.pause()",
        ],
        stdout=subprocess.PIPE,
    )
    assert runner.stdout is not None
    runner.stdout.readline()
    pid.write_text(f'{{"pid": {runner.pid}, "start_ticks": 123}}\n')
    last = re.search(r"end\(\) .*", create.START)
    assert last is not None
    command = last.group().replace(create.ROOT, str(tmp_path)).replace("trap end TERM;", "trap end TERM; echo up;")
    first = subprocess.Popen([shell, "-c", command], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == b"up\n"
        first.send_signal(signal.SIGTERM)
        assert runner.wait(timeout=300) == 7
        assert first.wait(timeout=300) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)  # its `sleep` too
        for one in (runner, first):
            one.kill()
            one.wait()
