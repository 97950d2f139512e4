"""The door to vast.ai's SDK: what is sent twice and what never, what the pages prove, and that no key gets out."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.common.errors import (
    InsufficientFunds,
    NoCapacity,
    NotAuthorized,
    OutcomeUnknown,
    RateLimited,
    RequestRefused,
    Unreachable,
)
from sweepstack.platforms.common.deadline import Deadline, DeadlineOver
from sweepstack.platforms.common.rate_limit import PACE_VARIABLE
from sweepstack.platforms.vastai.api import QUOTAS, Client
from sweepstack.platforms.vastai.states import NoSuchThing, RentedAnyway, StartQueued
from tests.unit.platforms.loopback import Reply, Request
from tests.unit.platforms.vastai_world import LIST, V0, World, instance

KEY = "k3y-0123456789abcdef-of-nobody"
ASK = f"{V0}/asks/7/"
USER = f"{V0}/users/current"
TOO_FAST = [
    Reply("API requests too frequent", 429),
    Reply("API requests too frequent: endpoint threshold=4.5", 429),
    Reply({"detail": "API requests too frequent endpoint threshold=4.5"}, 429),
    Reply({"success": False, "error": "rate_limit_exceeded", "msg": "slow down"}, 429),
    Reply({"success": False, "msg": "wait"}, 429, {"Retry-After": "1"}),
]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    world = World()
    monkeypatch.setenv("VAST_URL", world.url)
    monkeypatch.setenv("VAST_API_KEY", KEY)
    monkeypatch.setenv(PACE_VARIABLE, "0.002")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield world
    world.close()


def deadline() -> Deadline:
    return Deadline(60)


def create(client: Client, **changes: Any) -> int:
    return client.create(7, deadline(), **{"image": "ubuntu:22.04", "disk": 20.0, "label": "tag", **changes})


def test_a_read_is_asked_again_after_a_failure(world: World) -> None:
    world.routes[("GET", USER)] = [Reply("bad gateway", 502), Reply(cut=True), Reply({"id": 77})]
    assert Client().user(deadline())["id"] == 77
    assert len(world.requests) == 3


@pytest.mark.parametrize(
    "reply",
    [
        Reply(cut=True),
        Reply("bad gateway", 502),
        Reply({"success": False, "error": "x", "msg": "internal"}, 500),
        Reply("<html>hello</html>", 200),
        Reply({"success": True}, 200),
        Reply([], 200),
    ],
)
def test_a_create_whose_outcome_is_unknown_is_sent_once(world: World, reply: Reply) -> None:
    world.routes[("PUT", ASK)] = reply
    with pytest.raises(OutcomeUnknown):
        create(Client())
    assert len(world.sent("PUT", ASK)) == 1


def test_a_write_that_never_left_made_nothing(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    client = Client()
    world.close()
    with pytest.raises(Unreachable):
        create(client)


@pytest.mark.parametrize("reply", TOO_FAST)
def test_a_write_that_was_too_fast_is_sent_again(world: World, reply: Reply) -> None:
    world.routes[("PUT", ASK)] = [reply, reply, Reply({"success": True, "new_contract": 4711})]
    assert create(Client()) == 4711
    assert len(world.sent("PUT", ASK)) == 3


def test_used_up_searches_are_not_asked_for_again(world: World) -> None:
    world.routes[("POST", f"{V0}/bundles/")] = Reply({"error": "search_quota_exceeded"}, 429)
    with pytest.raises(RateLimited, match="midnight"):
        Client().search({}, deadline(), kind="on-demand", order="dph_total", storage=20)
    assert len(world.requests) == 1


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply({"success": False, "error": "no_such_ask", "msg": "error 410/3907"}, 410), NoCapacity),
        (Reply({"success": False, "error": "invalid_args", "msg": "error 404/3603: no_such_ask"}, 404), NoCapacity),
        (Reply({"success": False, "msg": "Your account lacks credit"}, 400), InsufficientFunds),
        (Reply({"success": False, "error": "auth_error", "msg": "Invalid user key"}, 404), NotAuthorized),
        (Reply("", 401), NotAuthorized),
        (Reply({"success": False, "error": "x", "msg": "no"}, 200), RequestRefused),
        (Reply({"success": False, "error": "x", "msg": "bid", "new_contract": 4711}, 400), RentedAnyway),
        (Reply({"success": False, "error": "x", "msg": "bid", "new_contract": 4711}, 200), RentedAnyway),
    ],
)
def test_a_refused_create_says_why_and_is_sent_once(world: World, reply: Reply, expected: type[Exception]) -> None:
    world.routes[("PUT", ASK)] = reply
    with pytest.raises(expected) as caught:
        create(Client())
    assert type(caught.value) is expected
    assert len(world.sent("PUT", ASK)) == 1


def test_a_start_that_is_queued_is_no_success(world: World) -> None:
    world.routes[("PUT", f"{V0}/instances/4711/")] = Reply(
        {"success": False, "msg": "Required resources are currently unavailable, state change queued."}
    )
    with pytest.raises(StartQueued):
        Client().start(4711, deadline())


def test_a_missing_instance_is_null_and_a_bare_404_is_nothing(world: World) -> None:
    world.absent(4711)
    client = Client()
    assert client.instance(4711, deadline()) is None
    with pytest.raises(NoSuchThing):
        client.stop(4711, deadline())
    world.routes[("GET", f"{V0}/instances/4711/")] = Reply("", 404)
    with pytest.raises(Unreachable):
        client.instance(4711, deadline())


def test_a_row_that_the_sdk_would_choke_on_is_read(world: World) -> None:
    row = instance(4711, "tag")
    del row["start_date"], row["extra_env"]
    world.instances[4711] = row
    assert Client().instances(deadline())[4711] == row


def test_all_pages_are_read(world: World) -> None:
    for number in range(1, 61):
        world.add(number, f"tag-{number}")
    assert list(Client().instances(deadline())) == list(range(1, 61))
    assert [request.query.get("after_token") for request in world.sent("GET", LIST)] == [None, "25", "50"]


def test_a_list_that_lacks_a_row_is_read_again_and_then_nothing_known(world: World) -> None:
    world.add(1, "a")
    world.add(2, "b")
    whole = world.list

    def short(request: Request) -> Reply:
        reply = whole(request)
        reply.body["instances"] = reply.body["instances"][:1]
        return reply

    world.routes[("GET", LIST)] = short
    with pytest.raises(Unreachable, match="1 of 2"):
        Client().instances(deadline())
    calls = iter([short, short, whole, whole])
    world.routes[("GET", LIST)] = lambda request: next(calls)(request)
    assert list(Client().instances(deadline())) == [1, 2]


def test_a_row_that_slipped_between_two_pages_is_missed(world: World) -> None:
    """While one instance ends and another is made, the total stays what it was: the counts of labels tell."""
    world.add(1, "a")
    world.add(2, "b")
    whole = world.list

    def swapped(request: Request) -> Reply:
        reply = whole(request)
        reply.body["instances"] = [instance(1, "a"), instance(3, "c")]
        return reply

    world.routes[("GET", LIST)] = swapped
    with pytest.raises(Unreachable, match="b"):
        Client().instances(deadline())


@pytest.mark.parametrize(
    "changes",
    [
        {"instances": None},
        {"instances": [{"label": "no id"}]},
        {"total_instances": None},
        {"instances": [7]},
        {"success": False},
    ],
)
def test_a_list_of_nonsense_is_nothing_known(world: World, changes: dict[str, Any]) -> None:
    world.add(1, "a")
    world.routes[("GET", LIST)] = lambda request: Reply({**World.list(world, request).body, **changes})
    with pytest.raises((Unreachable, RequestRefused)):
        Client().instances(deadline())


@pytest.mark.parametrize("tokens", ["same", "new"])
def test_a_list_without_end_ends(world: World, monkeypatch: pytest.MonkeyPatch, tokens: str) -> None:
    monkeypatch.setattr("sweepstack.platforms.vastai.api._PAGES", 5)
    world.add(1, "a")

    def page(request: Request) -> Reply:
        token = 7 if tokens == "same" else int(request.query.get("after_token", 0)) + 1
        return Reply({**world.list(request).body, "next_token": str(token)})

    world.routes[("GET", LIST)] = page
    with pytest.raises(Unreachable, match="no last page"):
        Client().instances(deadline())


def test_many_who_ask_at_once_share_a_list_and_nobody_gets_one_from_before_a_write(world: World) -> None:
    world.add(1, "a")
    client = Client()
    all_wait = threading.Event()
    seen: list[list[int]] = []

    def ask() -> None:
        seen.append(list(Client().instances(deadline())))

    def held(request: Request) -> Reply:
        assert all_wait.wait(50)
        return world.list(request)

    world.routes[("GET", LIST)] = held  # the first one's answer comes when all the others wait for the next
    threads = [threading.Thread(target=ask) for _ in range(30)]
    for thread in threads:
        thread.start()
    ends = time.monotonic() + 40
    while len(client.state.instances._turn._waiters) != 29:  # type: ignore[attr-defined]
        assert time.monotonic() < ends
        time.sleep(0.005)
    all_wait.set()
    for thread in threads:
        thread.join()
    assert seen == [[1]] * 30
    assert len(world.sent("GET", LIST)) < 10
    before = len(world.sent("GET", LIST))
    client.instances(deadline(), age=60)
    assert len(world.sent("GET", LIST)) == before
    client.destroy(1, deadline())
    assert list(client.instances(deadline(), age=60)) == []


def test_the_turn_is_waited_for_and_can_be_cut(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PACE_VARIABLE, "100")
    monkeypatch.setenv("VAST_API_KEY", f"{KEY}-slow")
    world.routes[("PUT", ASK)] = Reply({"success": True, "new_contract": 4711})
    client = Client()
    client.create(7, Deadline(60), label="first")
    with pytest.raises(DeadlineOver):
        client.create(7, Deadline(5), label="no time")
    cancelled = threading.Event()
    threading.Timer(0.1, cancelled.set).start()
    with pytest.raises(DeadlineOver, match="cancelled"):
        client.create(7, Deadline(6000, cancelled), label="cut")
    assert [request.body["label"] for request in world.sent("PUT", ASK)] == ["first"]


def test_every_endpoint_has_the_pace_of_the_facts() -> None:
    apart = {name: quota.seconds / quota.count for name, quota in QUOTAS.items()}
    assert {name: apart[name] for name in apart if name != "user"} == {
        "create": 4.5, "get": 2.0, "list": 1.0, "state": 1.0, "destroy": 3.0, "bid": 5.5, "volumes": 5.5, "ssh": 1.0,
        "search": 6.0, "charges": 1.0,
    }  # fmt: skip


def test_the_key_is_looked_for_where_the_sdk_looks(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("VAST_API_KEY")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with pytest.raises(NotAuthorized, match="VAST_API_KEY"):
        Client()
    (tmp_path / ".vast_api_key").write_text("from-the-old-file\n")
    Client().user(deadline())
    (tmp_path / "config" / "vastai").mkdir(parents=True)
    (tmp_path / "config" / "vastai" / "vast_api_key").write_text("from-the-new-file\n")
    Client().user(deadline())
    monkeypatch.setenv("VAST_API_KEY", " from-the-environment\n")
    Client().user(deadline())
    assert [request.headers["Authorization"] for request in world.requests] == [
        "Bearer from-the-old-file",
        "Bearer from-the-new-file",
        "Bearer from-the-environment",
    ]


@pytest.mark.parametrize("key", ["two\nlines-of-a-key", "ключ-of-somebody", "words of-a-key", "   "])
def test_what_is_no_key_is_said_and_not_shown(world: World, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("VAST_API_KEY", key)
    with pytest.raises(NotAuthorized) as caught:
        Client()
    assert "of-" not in str(caught.value)
    assert world.requests == []


@pytest.mark.parametrize(
    "reply",
    [
        Reply({"success": False, "error": "auth_error", "msg": f"bad key {KEY}"}, 404),
        Reply(f"key {KEY} is unknown", 401),
        Reply(f"<html>{KEY}", 502),
        Reply(cut=True),
        Reply(f"not JSON {KEY}"),
    ],
)
def test_no_key_in_errors_logs_urls_or_output(
    world: World, reply: Reply, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    world.routes[("PUT", ASK)] = reply
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is tested above
        create(Client())
    assert KEY not in "".join(traceback.format_exception(caught.value))
    captured = capfd.readouterr()
    assert KEY not in captured.out + captured.err + caplog.text
    assert captured.out == ""
    assert all(KEY not in request.path + str(request.query) for request in world.requests)
    linked = caught.value.__cause__ or caught.value.__context__
    assert linked is None, "what the SDK raised holds the request, and that its key"


def test_the_account_s_answer_is_kept_without_its_key(world: World) -> None:
    assert "api_key" not in Client().user(deadline())
