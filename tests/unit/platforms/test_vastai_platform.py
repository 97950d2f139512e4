"""The adapter of vast.ai against single answers of its API: rented once, undone exactly, gone only when proved."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.common.box_layout import volume_tag
from sweepstack.onbox.common.errors import (
    InsufficientFunds,
    NoCapacity,
    NotYetGone,
    NotYetStopped,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    StillCreating,
    Unreachable,
    Unsupported,
    WrongAccount,
)
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait
from sweepstack.platforms.common import reach_box
from sweepstack.platforms.common.deadline import Deadline, DeadlineOver
from sweepstack.platforms.common.http_client import ATTEMPTS
from sweepstack.platforms.common.rate_limit import PACE_VARIABLE
from sweepstack.platforms.registry import volume_channel
from sweepstack.platforms.vastai import create as rent
from sweepstack.platforms.vastai import platform as vastai
from sweepstack.platforms.vastai import power, volumes
from sweepstack.platforms.vastai.api import RecentlyAsked, forget
from sweepstack.platforms.vastai.platform import VastPlatform
from tests.at_once import at_once
from tests.unit.platforms.loopback import Reply, Request
from tests.unit.platforms.vastai_world import AT_REST, LIST, SEARCH, V0, World, instance, offer

TAG = "sweepstack-a1b2c3-box-0-g1"
PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPoFno me@here"
keys = iter(range(1_000_000))
EMPTY = {"instances": [], "total_instances": 0, "next_token": None}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    world = World()
    monkeypatch.setenv("VAST_URL", world.url)
    monkeypatch.setenv("VAST_API_KEY", f"k3y-0123456789abcdef-{next(keys)}")
    monkeypatch.setenv(PACE_VARIABLE, "0.002")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(reach_box, "ON", False)
    # At the pace of tests each is a tenth of a second, and a busy machine takes longer.
    monkeypatch.setattr(power, "STOP_SECONDS", 30_000.0)
    monkeypatch.setattr(power, "GONE_SECONDS", 30_000.0)
    world.offers = [offer(7, 0.41), offer(8, 0.52)]
    yield world
    world.close()


@pytest.fixture
def in_vain(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told to stop or to end does not: no test waits a minute for that."""
    monkeypatch.setattr(power, "STOP_SECONDS", 60.0)
    monkeypatch.setattr(power, "GONE_SECONDS", 90.0)


def request(**changes: Any) -> BoxRequest:
    return BoxRequest(**{"tag": TAG, "name": "box-0", "public_key": PUBLIC, **changes})


def create(wait: Wait | None = None, **changes: Any) -> BoxRecord:
    return VastPlatform().create(request(**changes), wait=wait or Wait(30))


def rents(world: World, ask: int, contract: int = 4711, **changes: Any) -> None:
    """A PUT for the offer makes an instance."""

    def answer(asked: Request) -> Reply:
        world.add(contract, asked.body["label"], **changes)
        return Reply({"success": True, "new_contract": contract, "instance_api_key": "not for us"})

    world.routes[("PUT", f"{V0}/asks/{ask}/")] = answer


def put(world: World, ask: int = 7) -> list[Request]:
    return world.sent("PUT", f"{V0}/asks/{ask}/")


def test_its_start_command_holds_the_lease_within_the_length_that_the_vendor_takes(world: World) -> None:
    rents(world, 7)
    create(lease_seconds=7200.0)
    script = put(world)[0].body["onstart"]
    assert len(script) <= 4096
    held, _, begins = script.partition("\nwhile :")
    said = subprocess.run(["bash", "-c", f'{held}\nprintf %s "$SWEEPSTACK_LEASE"'], capture_output=True, check=True)
    program = said.stdout.decode()
    compile(program, "timer", "exec")
    assert "/api/v0/instances/@here@/', {'state': 'stopped'})" in program
    assert subprocess.run(["bash", "-n"], input=f"while :{begins}".encode()).returncode == 0


def test_a_box_is_rented_as_it_was_asked_for(world: World) -> None:
    rents(world, 7)
    record = create(env={"A": "b"}, image="pytorch/pytorch", resources={"disk": "30GB"})
    assert (record.native_id, record.phase, record.tag, record.account) == ("4711", Phase.RUNNING, TAG, "77")
    (sent,) = put(world)
    body = dict(sent.body)
    assert "mkdir -p /sweepstack/data /sweepstack/scratch /sweepstack/mnt/durable;" in body.pop("onstart")
    assert body == {
        "client_id": "me",
        "image": "pytorch/pytorch",
        "env": {"A": "b"},
        "price": None,
        "disk": 30.0,
        "label": TAG,
        "extra": None,
        "image_login": None,
        "python_utf8": False,
        "lang_utf8": False,
        "use_jupyter_lab": False,
        "jupyter_dir": None,
        "force": False,
        "cancel_unavail": True,
        "template_hash_id": None,
        "user": None,
        "runtype": "ssh_direct",
    }
    (search,) = world.sent("POST", SEARCH)
    assert search.body["allocated_storage"] == 30.0
    assert (search.body["type"], search.body["order"]) == ("on-demand", [["dph_total", "asc"]])
    (attached,) = world.sent("POST", f"{V0}/instances/4711/ssh/")
    assert attached.body == {"ssh_key": PUBLIC}
    assert world.asked()[0] == f"GET {V0}/users/current"


def test_a_box_with_the_tag_is_adopted_and_nothing_is_rented(world: World) -> None:
    world.add(5, f"{TAG}0")
    world.add(6, TAG)
    assert create().native_id == "6"
    assert not put(world)
    assert len(world.sent("POST", f"{V0}/instances/6/ssh/")) == 1
    world.routes[("GET", f"{V0}/instances/6/ssh/")] = Reply({"ssh_keys": [{"public_key": PUBLIC}]})
    assert create().native_id == "6"
    assert len(world.sent("POST", f"{V0}/instances/6/ssh/")) == 1


def test_of_two_boxes_with_the_tag_the_oldest_is_kept_and_the_other_told(world: World) -> None:
    world.add(9, TAG)
    world.add(6, TAG)
    heard: list[str] = []
    record = create(Wait(30, heard.append))
    assert record.native_id == "6"
    assert any("2 instances carry this tag" in line and "9" in line for line in heard)
    found = VastPlatform().find_by_tag(TAG)
    assert found is not None
    assert "9" in found.note
    assert not any(line.startswith("DELETE") for line in world.asked())


LISTED_LATE = Reply({"success": True, "new_contract": 4711})


@pytest.mark.parametrize("lost", [Reply(cut=True), Reply("<html>", 502), Reply({"success": True}), LISTED_LATE])
def test_a_lost_answer_and_a_box_that_is_not_listed_yet_are_looked_for_and_sent_once(world: World, lost: Reply) -> None:
    """The box shows up in the list only at a later look."""
    whole = world.list

    def answer(_: Request) -> Reply:
        world.absent(4711)
        looks = iter([False] * 3 if lost is LISTED_LATE else [False] * 2)

        def late(asked: Request) -> Reply:
            if next(looks, True):
                world.add(4711, TAG)
            return whole(asked)

        world.routes[("GET", LIST)] = late
        return lost

    world.routes[("PUT", f"{V0}/asks/7/")] = answer
    assert create().native_id == "4711"
    assert len(put(world)) == 1
    assert not put(world, 8)


def test_a_lost_answer_that_stays_lost_is_an_unknown_outcome(world: World) -> None:
    world.routes[("PUT", f"{V0}/asks/7/")] = Reply("", 504)
    with pytest.raises(OutcomeUnknown, match="may yet"):
        create()
    assert len(put(world)) == 1
    assert not put(world, 8)
    assert len(world.sent("GET", LIST)) >= 1 + len(rent.LOOK_AGAIN)


def test_a_lost_answer_is_looked_for_even_when_the_list_is_away_for_a_while(world: World) -> None:
    whole = world.list
    world.routes[("PUT", f"{V0}/asks/7/")] = lambda _: (world.add(4711, TAG), Reply("", 502))[1]
    calls = iter([whole, whole, *[lambda _: Reply("", 503)] * 8])  # those with the label, and how many there are
    world.routes[("GET", LIST)] = lambda asked: next(calls, whole)(asked)
    assert create().native_id == "4711"
    assert len(put(world)) == 1


@pytest.mark.parametrize(
    ("status", "lost"), [(200, []), (400, []), (500, []), (400, [Reply("<html>", 502), Reply(cut=True)])]
)
def test_a_refusal_that_made_an_instance_is_undone_exactly_and_the_next_offer_tried(
    world: World, monkeypatch: pytest.MonkeyPatch, status: int, lost: list[Reply]
) -> None:
    """Its end is sent again when the answer is lost. Found on a3c2bc8: one 502 left it there, to be started later."""
    monkeypatch.setattr(rent, "_GONE_SECONDS", 30_000.0)  # a busy machine takes longer than a tenth of a second
    world.add(4000, "somebody-else-s")

    def refuse(_: Request) -> Reply:
        world.add(4711, TAG, **AT_REST)
        answers = iter(lost)
        world.routes[("DELETE", f"{V0}/instances/4711/")] = lambda _: next(answers, None) or world.end(4711)
        return Reply({"success": False, "error": "bid_too_low", "msg": "low", "new_contract": 4711}, status)

    world.routes[("PUT", f"{V0}/asks/7/")] = refuse
    world.absent(4711)
    rents(world, 8, 4712)
    assert create().native_id == "4712"
    deletes = [line for line in world.asked() if line.startswith("DELETE")]
    assert deletes == [f"DELETE {V0}/instances/4711/"] * (1 + len(lost))
    assert list(world.instances) == [4000, 4712]


def test_a_key_is_let_in_once_where_the_box_is_there_already(world: World) -> None:
    world.add(4711, TAG)
    path, key = f"{V0}/instances/4711/ssh/", "ssh-ed25519 AAAA me"
    VastPlatform().let_in("4711", "77", key)
    assert [sent.body for sent in world.sent("POST", path)] == [{"ssh_key": key}]
    world.routes[("GET", path)] = Reply({"success": True, "ssh_keys": [{"public_key": key}]})
    VastPlatform().let_in("4711", "77", key)
    assert len(world.sent("POST", path)) == 1


def test_an_instance_that_a_refusal_made_and_that_does_not_go_keeps_its_id_and_is_remembered(world: World) -> None:
    def refuse(_: Request) -> Reply:
        world.add(4711, TAG, **AT_REST)
        world.routes[("DELETE", f"{V0}/instances/4711/")] = Reply({"success": True})
        return Reply({"success": False, "msg": "low", "new_contract": 4711}, 400)

    world.routes[("PUT", f"{V0}/asks/7/")] = refuse
    with pytest.raises(StillCreating) as caught:
        create()
    assert caught.value.identifier == "4711"
    assert caught.value.outputs["tag"] == TAG
    assert not put(world, 8)
    forget()
    world.routes[("GET", LIST)] = Reply(EMPTY)
    rents(world, 7, 4712)
    assert create().native_id == "4711"


def test_a_refusal_for_want_of_money_ends_the_search_also_when_it_made_an_instance(world: World) -> None:
    def refuse(_: Request) -> Reply:
        world.add(4711, TAG, **AT_REST)
        return Reply({"success": False, "msg": "Your account lacks credit", "new_contract": 4711}, 400)

    world.routes[("PUT", f"{V0}/asks/7/")] = refuse
    with pytest.raises(InsufficientFunds, match="billing"):
        create()
    assert world.instances == {}
    assert not put(world, 8)


def test_an_offer_that_was_taken_is_followed_by_the_next(world: World) -> None:
    world.routes[("PUT", f"{V0}/asks/7/")] = Reply({"error": "no_such_ask", "msg": "error 410/3907: no_such_ask"}, 410)
    rents(world, 8)
    assert create().native_id == "4711"
    assert (len(put(world)), len(put(world, 8))) == (1, 1)


def test_where_time_is_up_the_refusals_say_what_it_means(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was "nothing was rented" without a kind: `pulumi up` then named no other offer."""

    def over(deadline: Deadline, seconds: float, what: str = "") -> None:
        if "whose key" not in what:  # a busy machine asks that again, before the second create
            raise DeadlineOver(f"{what} would take 3.0 s more, and 30 s is all there is")

    def refuse(_: Request) -> Reply:
        monkeypatch.setattr(Deadline, "pause", over)
        return Reply({"error": "no_such_ask", "msg": "gone"}, 410)

    world.routes[("PUT", f"{V0}/asks/7/")] = refuse
    with pytest.raises(NoCapacity, match=r"(?s)none of 1 offers could be had.*offer 7.*30 s is all there is"):
        create()
    assert (len(put(world)), len(put(world, 8))) == (1, 0)
    with pytest.raises(PlatformError, match=r"no request to make .* was sent") as caught:
        create(tag=f"{TAG}0")
    assert type(caught.value) is PlatformError, "where nothing was refused, nothing is known of the market"


def test_the_chosen_offer_comes_first_and_the_ceiling_holds(world: World) -> None:
    def search(asked: Request) -> Reply:
        chosen = asked.body.get("ask_contract_id")
        return Reply({"offers": [row for row in world.offers if not chosen or row["id"] == chosen["eq"]]})

    world.routes[("POST", SEARCH)] = search
    rents(world, 8)
    assert create(offer="8").native_id == "4711"
    assert not put(world, 7)
    with pytest.raises(NoCapacity, match=r"0\.3 USD"):
        create(tag=f"{TAG}0", max_price=0.3)
    world.offers = [offer(9, 0.2), offer(8, 9.0)]
    rents(world, 9, 4712, dph_total=0.2)
    assert create(tag=f"{TAG}1", offer="8", max_price=0.3).native_id == "4712"


def test_boxes_that_were_placed_share_the_search_that_finds_their_offers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten searches a minute are all there are: with one for each box, a hundred would wait for ten minutes."""
    monkeypatch.setattr("sweepstack.platforms.vastai.offers._FRESH_SECONDS", 6000.0)
    world.offers = [offer(number, 0.4 + number / 100) for number in range(1, 9)]
    for number in range(1, 9):
        rents(world, number, 4710 + number)
    made = [create(tag=f"{TAG}{number}", offer=str(number)).native_id for number in (3, 1, 8)]
    assert made == ["4713", "4711", "4718"]
    assert len(world.sent("POST", SEARCH)) == 1


def test_a_box_that_costs_more_than_it_was_offered_for_is_told(world: World) -> None:
    rents(world, 7, dph_total=0.9)
    with pytest.raises(StillCreating, match=r"at most 0\.5") as caught:
        create(max_price=0.5)
    assert caught.value.identifier == "4711"


def test_two_boxes_of_one_run_take_two_offers(world: World) -> None:
    rents(world, 7, 4711)
    rents(world, 8, 4712)
    made = at_once(lambda tag: create(tag=tag).native_id, (TAG, f"{TAG}0"))
    assert sorted(made) == ["4711", "4712"]
    assert (len(put(world)), len(put(world, 8))) == (1, 1)


def test_a_bid_is_of_the_whole_machine_and_one_that_stands_still_is_told(world: World) -> None:
    rents(world, 7, **{**AT_REST, "actual_status": None, "is_bid": True})
    with pytest.raises(StillCreating, match="too low from the start") as caught:
        create(resources={"spot": True})
    assert caught.value.identifier == "4711"
    assert put(world)[0].body["price"] == 0.205
    assert world.sent("POST", SEARCH)[0].body["type"] == "bid"


def test_a_box_that_can_never_start_is_told_at_once(world: World) -> None:
    rents(world, 7, actual_status="created", status_msg="x: OCI runtime create failed: no bash")
    with pytest.raises(StillCreating, match="OCI runtime") as caught:
        create(Wait(600))
    assert caught.value.identifier == "4711"


def test_a_box_that_loads_for_ever_keeps_its_id_at_the_deadline(world: World) -> None:
    rents(world, 7, actual_status="loading", status_msg="pulling layer 3")
    with pytest.raises(StillCreating, match="pulling layer 3") as caught:
        create(Wait(3.0))  # a busy machine needs most of a second for the first look
    assert (caught.value.identifier, caught.value.outputs["phase"]) == ("4711", "creating")


def test_a_box_boots_on_while_the_api_is_away(world: World) -> None:
    whole = world.list

    def answer(_: Request) -> Reply:
        world.add(4711, TAG)
        calls = iter([lambda _: Reply("", 503)] * 10)
        world.routes[("GET", LIST)] = lambda asked: next(calls, whole)(asked)
        return Reply({"success": True, "new_contract": 4711})

    world.routes[("PUT", f"{V0}/asks/7/")] = answer
    assert create().native_id == "4711"


def test_a_box_that_two_answers_leave_out_while_it_boots_is_not_removed(world: World) -> None:
    """A list from before and a null, once each; it loads until they have come."""
    rents(world, 7, actual_status="loading")
    whole, looks = world.list, iter(range(100))

    def listed(asked: Request) -> Reply:
        if not world.instances:
            return whole(asked)
        match next(looks):
            case 0:
                return whole(asked)
            case 1 | 2:
                return Reply(EMPTY)
            case _:
                world.instances[4711]["actual_status"] = "running"
                return whole(asked)

    world.routes[("GET", LIST)] = listed
    world.add(4711, TAG)
    world.instances.clear()
    null = iter([Reply({"instances": None})])

    def answer(asked: Request) -> Reply:
        world.instances[4711] = instance(4711, asked.body["label"], actual_status="loading")
        world.routes[("GET", f"{V0}/instances/4711/")] = lambda _: next(
            null, Reply({"instances": world.instances[4711]})
        )
        return Reply({"success": True, "new_contract": 4711})

    world.routes[("PUT", f"{V0}/asks/7/")] = answer
    assert create().native_id == "4711"
    assert next(null, None) is None, "the null was never told"


def test_a_box_that_is_removed_while_it_boots_is_told(world: World) -> None:
    rents(world, 7, actual_status="loading")
    whole, looks = world.list, iter(range(100))

    def listed(asked: Request) -> Reply:
        if world.instances and next(looks) == 3:
            world.instances.clear()
        return whole(asked)

    world.routes[("GET", LIST)] = listed
    with pytest.raises(PlatformError, match="4711 was removed, not by this command"):
        create()


def test_cancelled_before_the_put_makes_nothing(world: World) -> None:
    wait = Wait(30)

    def search(_: Request) -> Reply:
        wait.cancelled.set()
        return Reply({"offers": world.offers})

    world.routes[("POST", SEARCH)] = search
    with pytest.raises(PlatformError, match="cancelled"):
        create(wait)
    assert not put(world)


def test_another_account_s_box_is_not_touched(world: World) -> None:
    world.add(4711, TAG)
    platform = VastPlatform()
    for ask in (
        lambda: platform.get("4711", "78"),
        lambda: platform.destroy("4711", "78"),
        lambda: platform.stop("4711", "78"),
        lambda: platform.start("4711", "78", wait=Wait(5)),
        lambda: platform.change_bid("4711", "78", 0.5),
        lambda: platform.find_by_tag(TAG, "78"),
        lambda: platform.delete_volume("78.5", "78"),
        lambda: platform.channel("4711", "78"),
        lambda: platform.get_volume("78.5"),
    ):
        with pytest.raises(WrongAccount, match="78"):
            ask()
    assert set(world.asked()) == {f"GET {V0}/users/current"}


def test_gone_is_absent_from_the_list_and_null_and_nothing_less(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vastai, "READ_AGE_SECONDS", 0.0)  # every reading is of now
    platform = VastPlatform()
    world.add(4711, TAG)
    world.routes[("GET", f"{V0}/instances/4711/")] = Reply({"instances": None})
    assert platform.get("4711", "77").phase is Phase.RUNNING  # the list has it
    shown = world.instances.pop(4711)
    world.routes[("GET", f"{V0}/instances/4711/")] = Reply({"instances": shown})
    assert platform.get("4711", "77").phase is Phase.RUNNING  # it shows itself
    for reply in (Reply("", 404), Reply("", 500), Reply({"instances": 7}), Reply({"success": False}), Reply("null")):
        world.routes[("GET", f"{V0}/instances/4711/")] = reply
        with pytest.raises(PlatformError):
            platform.get("4711", "77")
    world.routes[("GET", f"{V0}/instances/4711/")] = Reply({"instances": None})
    assert platform.get("4711", "77").phase is Phase.GONE
    world.routes[("GET", LIST)] = Reply("", 503)
    with pytest.raises(Unreachable):
        platform.get("4711", "77")
    world.routes[("GET", LIST)] = Reply({"instances": [], "total_instances": 1, "next_token": None})
    with pytest.raises(Unreachable):
        platform.get("4711", "77")


@pytest.mark.usefixtures("in_vain")
def test_a_box_that_is_still_shown_after_its_destroy_is_ending(world: World) -> None:
    """C02: the platform said yes and goes on showing it: not proved, until a terminal answer."""
    world.add(4711, TAG)
    world.routes[("DELETE", f"{V0}/instances/4711/")] = Reply({"success": True})
    platform = VastPlatform()
    with pytest.raises(NotYetGone):
        platform.destroy("4711", "77")
    assert platform.get("4711", "77").phase is Phase.ENDING
    with pytest.raises(NotYetGone):
        create()
    for verb in (lambda: platform.stop("4711", "77"), lambda: platform.start("4711", "77", wait=Wait(5))):
        with pytest.raises(PlatformError, match="being destroyed"):
            verb()


@pytest.mark.parametrize("reply", [Reply("", 502), Reply(cut=True)])
def test_a_destroy_whose_answer_was_lost_is_not_yet_proved(world: World, reply: Reply) -> None:
    world.add(4711, TAG)
    world.routes[("DELETE", f"{V0}/instances/4711/")] = reply
    with pytest.raises(NotYetGone):
        VastPlatform().destroy("4711", "77")
    assert len(world.sent("DELETE", f"{V0}/instances/4711/")) == 1


@pytest.mark.usefixtures("in_vain")
def test_a_stop_that_does_nothing_is_not_yet_stopped(world: World) -> None:
    world.add(4711, TAG)
    world.routes[("PUT", f"{V0}/instances/4711/")] = Reply({"success": True})
    with pytest.raises(NotYetStopped):
        VastPlatform().stop("4711", "77")


def test_an_outbid_box_is_stopped_in_earnest_since_it_would_come_back(world: World) -> None:
    outbid = {"actual_status": "stopped", "intended_status": "running", "cur_state": "stopped", "next_state": "stopped"}
    world.add(4711, TAG, **outbid)
    platform = VastPlatform()
    record = platform.get("4711", "77")
    assert record.phase is Phase.STOPPED
    assert "preempted" in record.note
    platform.stop("4711", "77")
    assert [sent.body for sent in world.sent("PUT", f"{V0}/instances/4711/")] == [{"state": "stopped"}]


def queue(world: World, stop: Reply | None = None) -> None:
    """Starts are queued; a stop takes them back, unless it is answered by `stop`."""

    def turn(asked: Request) -> Reply:
        if asked.body["state"] == "running":
            world.instances[4711].update(intended_status="running", next_state="running")
            return Reply(
                {"success": False, "msg": "Required resources are currently unavailable, state change queued."}
            )
        return stop or world.turn(4711, asked)

    world.routes[("PUT", f"{V0}/instances/4711/")] = turn


def test_a_queued_start_is_taken_back(world: World) -> None:
    world.add(4711, TAG, **AT_REST)
    queue(world)
    with pytest.raises(NoCapacity, match="taken back"):
        VastPlatform().start("4711", "77", wait=Wait(30))
    assert [sent.body["state"] for sent in world.sent("PUT", f"{V0}/instances/4711/")] == ["running", "stopped"]
    assert world.instances[4711]["next_state"] == "stopped"


@pytest.mark.parametrize(
    ("floor", "advice"),
    [
        (0.31, "set `bid` to 0.3100 USD/h or more, try"),
        (0.30, "raise `bid` (no bid helps while"),
        (0.2, "raise `bid` (no"),
    ],
)
def test_a_bid_is_advised_only_where_it_is_higher_than_the_one_that_failed(
    world: World, floor: float, advice: str
) -> None:
    """Found on 6f8d950f: "set `bid` to 0.1000 USD/h or more" to a box whose bid was 0.1000."""
    world.add(4711, TAG, **AT_REST, is_bid=True, dph_base=0.30, min_bid=floor)
    queue(world)
    with pytest.raises(NoCapacity) as caught:
        VastPlatform().start("4711", "77", wait=Wait(5))
    assert advice in str(caught.value)


def test_a_queued_start_that_cannot_be_taken_back_is_told_with_its_id(world: World) -> None:
    world.add(4711, TAG, **AT_REST)
    queue(world, Reply("", 502))
    with pytest.raises(StillCreating, match="may start") as caught:
        VastPlatform().start("4711", "77", wait=Wait(30))
    assert caught.value.identifier == "4711"
    assert len(world.sent("PUT", f"{V0}/instances/4711/")) > 2


def test_a_start_that_leads_nowhere_is_told_before_the_deadline(world: World) -> None:
    world.add(4711, TAG, **AT_REST)
    world.routes[("PUT", f"{V0}/instances/4711/")] = Reply({"success": True})
    with pytest.raises(StillCreating, match="does not come up"):
        VastPlatform().start("4711", "77", wait=Wait(600))


def test_a_box_whose_contract_is_over_is_not_asked_to_start(world: World) -> None:
    world.add(4711, TAG, **AT_REST, end_date=1_790_000_000.0)
    with pytest.raises(
        RequestRefused, match=r"the contract with its host is over.*Its disk bills until it is destroyed"
    ):
        VastPlatform().start("4711", "77", wait=Wait(5))
    assert not world.sent("PUT", f"{V0}/instances/4711/")


@pytest.mark.parametrize("native_id", ["", ".", "../x", "0", "-1", "4711/ssh", "9" * 19, "x\0y", "٣"])
def test_an_id_that_cannot_be_ours_is_refused(world: World, native_id: str) -> None:
    platform = VastPlatform()
    for ask in (platform.get, platform.destroy, platform.stop, platform.channel):
        with pytest.raises(PlatformError):
            ask(native_id, "77")
    assert not any(line.startswith(("DELETE", "PUT")) for line in world.asked())


def test_lists_have_whole_prefixes_and_the_unlabelled_only_when_all_are_asked_for(world: World) -> None:
    world.add(1, TAG)
    world.add(2, None)
    world.add(3, "other")
    platform = VastPlatform()
    assert [record.native_id for record in platform.list_tagged("sweepstack-a1b2c3-")] == ["1"]
    assert [record.native_id for record in platform.list_tagged("")] == ["1", "2", "3"]
    assert platform.find_by_tag(TAG[:-1]) is None


def test_a_hundred_boxes_are_read_in_few_lists(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who ask while a list is on its way share the next: the first one's answer comes when all have asked."""
    honest, asked, all_asked = RecentlyAsked.ask, [], threading.Event()

    def ask(lately: RecentlyAsked, key: int | str) -> float:
        asked.append(key)
        if len(asked) >= 100:
            all_asked.set()
        return honest(lately, key)

    def held(request: Request) -> Reply:
        all_asked.wait(60)
        return world.list(request)

    # At this test's pace "lately" were 40 ms, and a hundred threads are no faster for it.
    monkeypatch.setattr("sweepstack.platforms.vastai.api.LATELY_SECONDS", 10_000.0)
    monkeypatch.setattr(RecentlyAsked, "ask", ask)
    world.routes[("GET", LIST)] = held
    for number in range(1, 101):
        world.add(number, f"tag-{number}")
    platform = VastPlatform()
    at_once(lambda number: platform.get(str(number), "77"), range(1, 101))
    assert not any(line.startswith(f"GET {V0}/instances/") for line in world.asked())
    assert len(world.sent("GET", LIST)) <= 40  # four pages a list


def test_a_bid_is_changed_only_on_what_was_bid_for(world: World) -> None:
    world.add(4711, TAG, is_bid=True)
    world.add(4712, f"{TAG}0")
    path = f"{V0}/instances/bid_price/4711/"
    world.routes[("PUT", path)] = Reply({"success": True})
    platform = VastPlatform()
    platform.change_bid("4711", "77", 0.55)
    assert [sent.body for sent in world.sent("PUT", path)] == [{"client_id": "me", "price": 0.55}]
    for native_id, bid in (("4712", 0.5), ("4711", 0.0001), ("4711", 33.0)):
        with pytest.raises(RequestRefused):
            platform.change_bid(native_id, "77", bid)


def test_the_balance_is_the_account_s_credit(world: World) -> None:
    balance = VastPlatform().balance()
    assert balance is not None
    assert (balance.usd, balance.prepaid, balance.volumes) == (12.5, True, False)


def volume_row(identifier: int, label: str, **changes: Any) -> dict[str, Any]:
    return {"id": identifier, "label": label, "machine_id": 99, "disk_space": 50.0, "status": "created", **changes}


VOLUME = "sweepstack-a1b2c3-volume-durable"


def test_a_volume_is_made_on_its_machine_and_found_again(world: World) -> None:
    rows: list[dict[str, Any]] = []
    world.routes[("GET", f"{V0}/volumes")] = lambda _: Reply({"volumes": rows})
    world.routes[("POST", f"{V0}/volumes/search/")] = Reply(
        {"offers": [{"id": 5, "machine_id": 99, "disk_space": 500, "storage_cost": 0.1}]}
    )

    def make(asked: Request) -> Reply:
        rows.append(volume_row(31, asked.body["name"]))
        return Reply({"success": True, "volume_name": "V.31"})

    world.routes[("PUT", f"{V0}/volumes/")] = make
    platform = VastPlatform()
    with pytest.raises(RequestRefused, match="machine:"):
        platform.ensure_volume(VOLUME, "durable", size_gb=50)
    with pytest.raises(RequestRefused, match="size"):
        platform.ensure_volume(VOLUME, "durable", region="machine:99")
    made = platform.ensure_volume(VOLUME, "durable", size_gb=50, region="machine:99")
    again = platform.ensure_volume(VOLUME, "durable", size_gb=50, region="machine:99")
    assert (made.native_id, made.tag, made.region, made.created) == ("77.31", VOLUME, "machine:99", True)
    assert made.price_per_month == pytest.approx(5.0)
    assert (again.native_id, again.created, again.account) == ("77.31", False, "77")
    (sent,) = world.sent("PUT", f"{V0}/volumes/")
    assert sent.body == {"id": 5, "size": 50, "name": "sweepstack_a1b2c3_volume_durable"}
    assert [record.native_id for record in platform.list_volumes("sweepstack-a1b2c3-")] == ["77.31"]
    assert platform.get_volume("77.31") == again
    assert platform.get_volume("77.32") is None
    with pytest.raises(Unsupported, match="machine:99"):
        volume_channel(platform, "77.31")


@pytest.mark.parametrize(("said", "away"), [(Reply("", 502), 0), (Reply({"success": True}), ATTEMPTS)])
def test_a_volume_whose_answer_or_list_was_lost_is_looked_for_and_not_made_twice(
    world: World, said: Reply, away: int
) -> None:
    rows: list[dict[str, Any]] = []
    outage: list[Reply] = []
    world.routes[("GET", f"{V0}/volumes")] = lambda _: outage.pop() if outage else Reply({"volumes": rows})
    world.routes[("POST", f"{V0}/volumes/search/")] = Reply(
        {"offers": [{"id": 5, "machine_id": 99, "disk_space": 500}]}
    )

    def make(asked: Request) -> Reply:
        rows.append(volume_row(31, asked.body["name"]))
        outage.extend([Reply("", 502)] * away)
        return said

    world.routes[("PUT", f"{V0}/volumes/")] = make
    made = VastPlatform().ensure_volume(VOLUME, "durable", size_gb=50, region="machine:99")
    assert made.native_id == "77.31"
    assert made.created or not away
    assert len(world.sent("PUT", f"{V0}/volumes/")) == 1


def test_a_volume_in_use_is_not_yet_gone_and_one_that_is_gone_is_a_success(world: World) -> None:
    rows = [volume_row(31, "x", status="in-use")]
    world.routes[("GET", f"{V0}/volumes")] = lambda _: Reply({"volumes": rows})
    replies = iter([Reply({"success": False, "msg": "Volume is in use"}, 400)])

    def delete(_: Request) -> Reply:
        reply = next(replies, None)
        if reply is None:
            rows.clear()
        return reply or Reply({"success": True})

    world.routes[("DELETE", f"{V0}/volumes/")] = delete
    platform = VastPlatform()
    with pytest.raises(NotYetGone, match="half a minute"):
        platform.delete_volume("77.31", "77")
    platform.delete_volume("77.31", "77")
    platform.delete_volume("77.31", "77")
    assert len(world.sent("DELETE", f"{V0}/volumes/")) == 2
    assert world.sent("DELETE", f"{V0}/volumes/")[0].query == {"id": "31"}


def test_a_box_with_a_volume_goes_to_its_machine(world: World) -> None:
    world.routes[("GET", f"{V0}/volumes")] = Reply({"volumes": [volume_row(31, "x", machine_id=80)]})
    rents(world, 8, machine_id=80)
    world.offers = [offer(8, 0.52)]
    create(mounts={"mnt/durable": "77.31"})
    assert world.sent("POST", SEARCH)[0].body["machine_id"] == {"eq": 80}
    assert put(world, 8)[0].body["volume_info"] == {
        "mount_path": "/sweepstack/mnt/durable",
        "create_new": False,
        "volume_id": 31,
    }
    with pytest.raises(PlatformError, match="not there any more"):
        create(tag=f"{TAG}0", mounts={"mnt/durable": "77.32"})


@pytest.mark.parametrize(
    ("users", "wanted", "said"),
    [
        ({31: []}, "77.31", "mounts no volume, and now 77.31 is asked for"),
        ({31: [], 32: [{"id": 6}]}, "77.31", "mounts 77.32, and now 77.31 is asked for"),
        ({31: [6], 32: [6]}, "77.31", "mounts 77.31, 77.32, and now 77.31 is asked for"),
        ({31: [{"id": 6}]}, "", "mounts 77.31, and now none is asked for"),
        ({31: None}, "77.31", "does not say which boxes mount 77.31"),
        ({}, "77.31", "mounts no volume, and now 77.31 is asked for"),
    ],
)
def test_a_box_with_the_tag_and_another_volume_is_not_adopted(
    world: World, users: dict[int, Any], wanted: str, said: str
) -> None:
    world.add(6, TAG)
    rows = [volume_row(number, f"v{number}", instances=who) for number, who in users.items()]
    world.routes[("GET", f"{V0}/volumes")] = Reply({"volumes": rows})
    with pytest.raises(PlatformError, match="it is not adopted, no second box is made") as refused:
        create(mounts={"mnt/durable": wanted} if wanted else {})
    assert said in str(refused.value)
    assert [request.method for request in world.requests if request.method != "GET"] == []


def test_a_box_with_the_tag_and_its_volume_is_adopted_also_where_the_list_lags(world: World) -> None:
    world.add(6, TAG)
    lists = iter([[], []])

    def rows(_: Request) -> Reply:
        return Reply({"volumes": [volume_row(31, "x", instances=next(lists, [{"id": 6}]))]})

    world.routes[("GET", f"{V0}/volumes")] = rows
    assert create(mounts={"mnt/durable": "77.31"}).native_id == "6"
    assert next(lists, None) is None
    assert not put(world)


def test_a_volume_is_called_by_its_tag_and_one_that_could_not_be_read_back_is_refused(world: World) -> None:
    assert volumes.name_of(VOLUME) == "sweepstack_a1b2c3_volume_durable"
    longest = volume_tag("a1b2c3d4e5", "x" * 35)
    for tag in (VOLUME, longest):
        assert volumes.tag_of(volumes.name_of(tag)) == tag
    for odd in (f"{longest}x", f"{VOLUME}_b", f"{VOLUME}.b", ""):
        with pytest.raises(RequestRefused, match="shorter name in the stack file"):
            VastPlatform().ensure_volume(odd, "x", size_gb=50, region="machine:99")
    assert world.sent("PUT", f"{V0}/volumes/") == []
