"""Many boxes of vast.ai at once: what they are asked about together, and that it proves no less than asking alone."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sweepstack.onbox.host.platform import BoxRequest, Wait
from sweepstack.platforms.common import reach_box, single_flight
from sweepstack.platforms.common.deadline import Deadline, DeadlineOver
from sweepstack.platforms.common.rate_limit import PACE_VARIABLE
from sweepstack.platforms.vastai import api, power
from sweepstack.platforms.vastai.api import forget
from sweepstack.platforms.vastai.platform import VastPlatform
from sweepstack.platforms.vastai.session import MOST_POLL_SECONDS, POLL_SECONDS, Session
from tests.at_once import at_once
from tests.unit.platforms.loopback import Reply, Request
from tests.unit.platforms.vastai_world import LIST, V0, World, offer

BOXES = range(1, 31)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    forget()
    world = World()
    monkeypatch.setenv("VAST_URL", world.url)
    monkeypatch.setenv("VAST_API_KEY", "k3y-0123456789abcdef-of-many")
    monkeypatch.setenv(PACE_VARIABLE, "0.01")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(reach_box, "ON", False)
    # In the time of tests it is 200 ms, and a busy machine takes longer for two looks.
    monkeypatch.setattr(api, "LATELY_SECONDS", 1e6)
    yield world
    world.close()
    forget()


@pytest.fixture
def session(world: World) -> Session:
    return Session.open(Deadline(60))


def asked_for(world: World) -> list[list[int] | None]:
    """The ids that each list asked for; None for all."""
    found = [json.loads(request.query["select_filters"]) for request in world.sent("GET", LIST)]
    return [one["id"]["in"] if "id" in one else None for one in found if "label" not in one]


# Looking at those that are waited for


def test_a_look_asks_for_those_that_are_waited_for_and_no_others(world: World, session: Session) -> None:
    for number in BOXES:
        world.add(number, f"tag-{number}")
    since = time.monotonic() - 30  # a list counts as older by as long as its reader was held up
    assert (session.watched(7, age=60, since=since) or {})["label"] == "tag-7"
    assert (session.watched(9, age=60, since=since) or {})["label"] == "tag-9"
    assert (session.watched(7, age=60, since=since) or {})["label"] == "tag-7"
    assert asked_for(world) == [[7], [7, 9]]


def test_who_comes_later_is_told_of_nothing_earlier(world: World, session: Session) -> None:
    """A list that did not ask for it says nothing of it, and one from before its verb would say what was."""
    world.add(7, "seven", actual_status="loading")
    world.add(8, "eight")
    session.watched(7, age=60, since=time.monotonic())
    assert session.watched(8, age=60, since=time.monotonic())
    assert asked_for(world) == [[7], [7, 8]]
    world.instances[7]["actual_status"] = "running"
    assert (session.watched(7, age=60, since=time.monotonic()) or {})["actual_status"] == "running"


@pytest.mark.parametrize(
    "answer",
    [
        Reply({"success": True, "instances": [], "total_instances": 0, "next_token": None}),
        Reply({"success": False, "error": "invalid_args", "msg": "Can't filter on that"}, 400),
    ],
    ids=["shows-nothing", "refused"],
)
def test_a_look_that_does_not_show_it_proves_nothing(world: World, session: Session, answer: Reply) -> None:
    for number in BOXES:
        world.add(number, f"tag-{number}")
    whole = world.list
    world.routes[("GET", LIST)] = lambda request: answer if "in" in request.query["select_filters"] else whole(request)
    for _ in range(3):
        assert (session.watched(7, age=0, since=time.monotonic()) or {})["label"] == "tag-7"
    if answer.status != 200:
        assert len([ids for ids in asked_for(world) if ids]) == 1, "what was refused is not asked for again"


def test_boxes_that_are_made_at_once_share_their_looks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each create waits for its turn, the last one for longer than its deadline, which counts from there; those that
    boot meanwhile are looked at together, without the others."""
    monkeypatch.setenv(PACE_VARIABLE, "0.06")  # 30 creates, one in 0.28 s: the last has its turn after 8.2 s
    world.offers = [offer(number) for number in BOXES]
    for number in BOXES:

        def made(request: Request, number: int = number) -> Reply:
            world.add(1000 + number, request.body["label"])
            return Reply({"success": True, "new_contract": 1000 + number})

        world.routes[("PUT", f"{V0}/asks/{number}/")] = made

    def make(number: int) -> None:
        request = BoxRequest(tag=f"tag-{number}", name=f"box-{number}", public_key="ssh-ed25519 AAAA x")
        VastPlatform().create(request, wait=Wait(8))

    at_once(make, BOXES)
    assert len(world.instances) == len(BOXES)
    assert len([ids for ids in asked_for(world) if ids]) < len(BOXES)


def test_looks_come_slower_while_others_stand_in_line(
    world: World, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PACE_VARIABLE, "1")  # a line of two minutes, which no busy machine misses
    usual = session.poll_seconds("create")
    assert usual == pytest.approx(POLL_SECONDS)
    line, over = session.client.state.limiters["create"], threading.Event()

    def stand() -> None:
        with contextlib.suppress(DeadlineOver):
            line.take(Deadline(6000, over), "rent")

    waiting = [threading.Thread(target=stand) for _ in BOXES]
    try:
        for thread in waiting:
            thread.start()
        end = time.monotonic() + 60
        while line.queue_seconds() < 50:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert usual < session.poll_seconds("create") <= MOST_POLL_SECONDS
        assert session.poll_seconds() == usual
    finally:
        over.set()
        for thread in waiting:
            thread.join()


# Ending


def test_boxes_that_are_ended_at_once_share_the_lists_that_prove_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power, "GONE_SECONDS", 6000.0)
    for number in BOXES:
        world.add(number, f"tag-{number}")
    at_once(lambda number: VastPlatform().destroy(str(number), "77"), BOXES)
    assert world.instances == {}
    deletes = [path for path in world.asked() if path.startswith("DELETE")]
    assert len(deletes) == len(BOXES), "one for each, and none was sent again"
    # Each looks at least twice, before and after. By themselves they would ask for twice as many lists.
    assert len(asked_for(world)) < 2 * len(BOXES)
    alone = [path for path in world.asked() if path.startswith(f"GET {V0}/instances/")]
    assert len(alone) == len(BOXES), "each of them is asked for by its number, too"


def ago(seconds: float) -> SimpleNamespace:
    """Stands in for `time` in a module."""
    return SimpleNamespace(monotonic=lambda: time.monotonic() - seconds, sleep=time.sleep)


def test_a_list_from_before_the_end_proves_nothing(
    world: World, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own `null` may come early: only the list still tells of it."""
    # A list counts as older by as long as its reader was held up, so the two moments are 20 s apart: the list is of
    # 40 s ago, and has been asked for the two for longer.
    with monkeypatch.context() as before:
        before.setattr(single_flight, "time", ago(40))
        before.setattr(api, "time", ago(120))
        for number in (7, 8):
            session.client.listed(number, Deadline(60))
    world.add(7, "tag-7")
    world.routes[("GET", f"{V0}/instances/7/")] = Reply({"instances": None})
    since = time.monotonic() - 20
    assert (session.row(7, age=60, since=since) or {})["label"] == "tag-7"
    world.absent(8)
    lists = len(world.sent("GET", LIST))
    assert session.row(8, age=60, since=since) is None
    assert len(world.sent("GET", LIST)) == lists, "one from after that moment serves everybody"
