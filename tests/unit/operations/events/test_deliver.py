"""Who is told of an event, and when: once each, by whichever command is first, through a real server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sweepstack.billing.budget import BudgetUse
from sweepstack.billing.forecast import Forecast
from sweepstack.config.events import EventsConfig
from sweepstack.core.budget import Budget
from sweepstack.evidence.store import EvidenceStore
from sweepstack.operations.events import channels, deliver
from sweepstack.operations.events.channels import channels_of
from sweepstack.operations.events.deliver import FOLDER, Delivery, Notice, Telling, Told
from sweepstack.operations.events.event import Event, budget_event
from tests.unit.operations.events.hooks import SECRET, hang_up_after, hook

SEEN = Forecast(72.4, 34.0, 3.0)
NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
RECORD = f"{FOLDER}/webhook-HOOK.json"
HOOK = EventsConfig(webhook="HOOK")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "BACKOFF", 0.01)
    monkeypatch.setattr(channels, "READ_SECONDS", 60.0)


@pytest.fixture
def store(tmp_path: Path) -> EvidenceStore:
    return opened(tmp_path)


def opened(tmp_path: Path) -> EvidenceStore:
    return EvidenceStore.found(f"file://{socket.gethostname()}{tmp_path}/evidence", "abc", "project", "stack")


def use(usd: float, **known: Any) -> BudgetUse:
    return BudgetUse(Budget(usd=60, webhook="HOOK", **known), usd, 5.0)


def told(store: EvidenceStore, spent: BudgetUse) -> str | None:
    """What became of a budget's alert; None where nothing was sent."""
    event = budget_event(spent.budget, spent, SEEN, stack="abl", per_hour=1.9, now=NOW)
    return sent(store, None, [] if event is None else [event], spent.budget)


def sent(
    store: EvidenceStore, config: EventsConfig | None, events: Sequence[Event], budget: Budget | None = None
) -> str:
    """What was in the way, or ""."""
    return deliver.deliver(store, channels_of(config, budget), events).wait(60)


def event(which: str = "a", **known: Any) -> Event:
    facts: dict[str, Any] = {"kind": "failed", "sentence": f"cell {which} failed on box box-0: exit code 1"}
    facts |= {"id": f"failed/id-0/{which}/0/1", "stack": "abl", "next": "sweepctl status --stack abl", "at": NOW}
    return Event(**facts | known)


# The budget


def test_each_threshold_is_told_once(store: EvidenceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hook() as server:
        monkeypatch.setenv("HOOK", server.url)
        for usd in (30, 50, 51):
            assert told(store, use(usd)) == ""
        assert told(opened(tmp_path), use(52)) == "", "another command, later"
        assert told(store, use(61)) == ""
        assert told(store, use(99)) == ""
    assert [body["threshold"] for body in server.taken] == [0.8, 1.0]
    assert SECRET not in "".join(path.read_text() for path in store.root.rglob("*.json"))


def test_a_jump_past_both_is_one_message(store: EvidenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with hook() as server:
        monkeypatch.setenv("HOOK", server.url)
        assert (told(store, use(70)), told(store, use(70))) == ("", "")
    assert [body["threshold"] for body in server.taken] == [1.0]


def test_a_raised_budget_begins_anew(store: EvidenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with hook() as server:
        monkeypatch.setenv("HOOK", server.url)
        assert told(store, use(61)) == ""
        assert told(store, BudgetUse(Budget(usd=70, webhook="HOOK"), 61, 5.0)) == ""
    assert [body["budget"]["usd"] for body in server.taken] == [60, 70]


@pytest.mark.parametrize(("state", "messages"), [("told", 0), ("sending", 1)])
def test_what_an_older_version_has_told_is_not_told_again(
    store: EvidenceStore, monkeypatch: pytest.MonkeyPatch, state: Any, messages: int
) -> None:
    before = Notice(threshold=0.8, usd=60, hours=None, state=state, at=NOW)
    store.write_record("notices/60usd-0h-0.8.json", before)
    with hook() as server:
        monkeypatch.setenv("HOOK", server.url)
        assert told(store, use(50)) == ""
    assert len(server.taken) == messages


def test_the_budget_s_body_says_it_to_people_and_to_programs() -> None:
    spent = use(61, stop=True)
    found = budget_event(spent.budget, spent, SEEN, stack="abl", per_hour=1.9, now=NOW)
    assert found is not None
    body = found.as_json()
    assert body["text"] == (
        "abl: 100 % of the budget is used: $61.00 of $60.00 (102 %); about $72.40 at the end; nothing more is rented; "
        "boxes are stopped where they can be; $1.90/h goes on. Next: sweepctl status --stack abl"
    )
    assert body["used"] == {"usd": 61, "hours": 5.0, "fraction": 1.0167}
    older = {"text", "stack", "threshold", "used", "budget", "projected", "per_hour"}
    assert set(body) == older | {"id", "kind", "box", "cell", "cost", "next", "at"}


# Any event


def test_an_event_is_told_once_at_each_place(store: EvidenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with hook() as web_server, hook() as topic:
        monkeypatch.setenv("HOOK", web_server.url)
        both = EventsConfig(webhook="HOOK", ntfy=topic.url)
        for _ in range(3):
            assert sent(store, both, [event("a"), event("b")]) == ""
    assert [body["cell"] for body in web_server.taken] == [None, None]
    assert [body["id"] for body in web_server.taken] == ["failed/id-0/a/0/1", "failed/id-0/b/0/1"]
    assert len(topic.taken) == 2


def test_only_the_kinds_that_were_asked_for(store: EvidenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with hook() as server:
        monkeypatch.setenv("HOOK", server.url)
        some = EventsConfig(webhook="HOOK", kinds=("hung", "gone"))
        assert sent(store, some, [event("a"), event("b", kind="hung", id="hung/b")]) == ""
    assert [body["kind"] for body in server.taken] == ["hung"]


def test_many_of_a_kind_are_one_message(store: EvidenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with hook() as server:
        monkeypatch.setenv("HOOK", server.url)
        many = [event(f"c{number}") for number in range(40)]
        assert sent(store, HOOK, [*many, event("x", kind="hung", id="hung/x")]) == ""
        assert sent(store, HOOK, [*many, event("late")]) == ""
    first, second, third = server.taken
    assert first["text"].startswith("abl: 40 times failed: cell c0 failed on box box-0: exit code 1; cell c1 failed")
    assert [one["id"] for one in first["events"]] == [one.id for one in many]
    assert (second["kind"], third["id"]) == ("hung", "failed/id-0/late/0/1")


def test_500_and_then_200_is_one_message(store: EvidenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with hook(500, 200) as server:
        monkeypatch.setenv("HOOK", server.url)
        assert (sent(store, HOOK, [event()]), sent(store, HOOK, [event()])) == ("", "")
    assert len(server.taken) == 2, "a try that failed, and one that was taken"
    assert server.taken[0] == server.taken[1]


def test_what_failed_is_told_at_the_next_look(store: EvidenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with hook(404, 200) as server:
        monkeypatch.setenv("HOOK", server.url)
        problem = sent(store, HOOK, [event("a"), event("b")])
        assert problem == (
            "the webhook (HOOK) was not told: cell a failed on box box-0: exit code 1: its server answered 404"
        )
        assert store.record(RECORD, Told) == Told()
        assert sent(store, HOOK, [event("a"), event("b")]) == ""
    assert [body["id"] for body in server.taken] == [event(which).id for which in "aab"]


def test_a_place_in_trouble_keeps_no_other_from_its_message(
    store: EvidenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang_up_after(2.0, "hang", monkeypatch)  # the topic has no more time, either
    monkeypatch.setattr(channels, "TRIES", 0)
    with hook("hang") as web_server, hook() as topic:
        monkeypatch.setenv("HOOK", web_server.url)
        assert "the webhook (HOOK) was not told" in sent(store, EventsConfig(webhook="HOOK", ntfy=topic.url), [event()])
        web_server.go_on.set()
    assert len(topic.taken) == 1


def test_a_hang_holds_no_command_up(store: EvidenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """`deliver` returns while the server has not answered; `wait(0)` says so."""
    with hook("hang") as server:
        monkeypatch.setenv("HOOK", server.url)
        under_way = deliver.deliver(store, channels_of(HOOK, None), [event()])
        assert under_way.under_way()
        assert under_way.wait(0) == "the webhook (HOOK) has not answered within 0 s; the next look tries again"
        server.go_on.set()


def test_many_at_once_send_one(store: EvidenceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hook() as server:
        monkeypatch.setenv("HOOK", server.url)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: sent(opened(tmp_path), HOOK, [event("a"), event("b")]), range(8)))
        assert sorted(body["id"] for body in server.taken) == ["failed/id-0/a/0/1", "failed/id-0/b/0/1"]


def test_a_sender_that_died_is_no_message(store: EvidenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(at: datetime) -> Told:
        return Told(events={event().id: Telling(state="sending", at=at)})

    with hook() as server:
        monkeypatch.setenv("HOOK", server.url)
        store.write_record(RECORD, half(datetime.now(UTC)))
        assert sent(store, HOOK, [event()]) == ""
        assert server.taken == [], "another process is at it"
        store.write_record(RECORD, half(datetime.now(UTC) - 2 * deliver.STALE))
        assert sent(store, HOOK, [event()]) == ""
    assert len(server.taken) == 1


def test_what_another_process_is_telling_is_looked_up_again(
    store: EvidenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may fail there; only what was told needs no further look."""
    monkeypatch.setenv("HOOK", "http://127.0.0.1:9/x")
    known = {"a": Telling(state="told", at=NOW), "b": Telling(state="sending", at=datetime.now(UTC))}
    store.write_record(RECORD, Told(events={event(name).id: how for name, how in known.items()}))
    found: Delivery = deliver.deliver(store, channels_of(HOOK, None), [event("a"), event("b")])
    assert found.wait(60) == ""
    assert found.told == {("webhook-HOOK", event("a").id)}


def test_without_its_variable_it_is_said_that_no_one_was_told(
    store: EvidenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOOK", raising=False)
    assert sent(store, HOOK, [event()]).startswith("HOOK is not set here, so the webhook (HOOK) was not told: cell a")
    monkeypatch.delenv("TOKEN", raising=False)
    topic = EventsConfig(ntfy="https://ntfy.example/t", token="TOKEN")
    assert sent(store, topic, [event()]).startswith("TOKEN is not set here, so ntfy was not told")


def test_a_damaged_record_is_said_and_no_message_is_sent(store: EvidenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store.root / "records" / RECORD
    path.parent.mkdir(parents=True)
    path.write_text("{")
    with hook() as server:
        monkeypatch.setenv("HOOK", server.url)
        assert "what the webhook (HOOK) was told is not on record" in sent(store, HOOK, [event()])
    assert server.taken == []


# A topic


def test_a_topic_takes_text_and_headers(store: EvidenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with hook() as server:
        monkeypatch.setenv("TOPIC", server.url)
        monkeypatch.setenv("NTFY_TOKEN", "tk_of-a-test\n")
        config = EventsConfig(ntfy="TOPIC", token="NTFY_TOKEN")
        assert sent(store, config, [event(per_hour=1.9)]) == ""
    (body,), (headers,) = server.taken, server.headers
    assert body["text"] == (
        "cell a failed on box box-0: exit code 1; $1.90/h goes on.\nNext: sweepctl status --stack abl"
    )
    assert {name: headers[name] for name in ("Title", "Priority", "Tags", "Authorization")} == {
        "Title": "abl: failed",
        "Priority": "high",
        "Tags": "warning,failed",
        "Authorization": "Bearer tk_of-a-test",
    }


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("http://ntfy.example/t", "its token is sent by https only"),
        ("https://u:p@ntfy.example/t", "no topic's address"),
        ("https://ntfy.example/", "no topic's address"),
        ("https://ntfy.example/t?auth=x", "no topic's address"),
        ("file:///etc/passwd", "no topic's address"),
    ],
)
def test_a_token_goes_nowhere_where_it_could_be_read(
    store: EvidenceStore, monkeypatch: pytest.MonkeyPatch, address: str, why: str
) -> None:
    monkeypatch.setenv("TOPIC", address)
    monkeypatch.setenv("NTFY_TOKEN", "tk_of-a-test")
    problem = sent(store, EventsConfig(ntfy="TOPIC", token="NTFY_TOKEN"), [event()])
    assert why in problem
    assert "tk_" not in problem
    assert "ntfy.example" not in problem.replace("such as https://ntfy.example/my-sweeps", "")


# Secrets


@pytest.mark.parametrize("answer", [200, 404, 500, "hang", "cut"])
def test_no_address_and_no_token_is_in_a_record_a_log_or_a_message(
    store: EvidenceStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, answer: int | str
) -> None:
    hang_up_after(0.2, answer, monkeypatch)
    caplog.set_level("DEBUG")
    with hook(answer) as server:
        monkeypatch.setenv("HOOK", server.url)
        monkeypatch.setenv("TOPIC", server.url)
        monkeypatch.setenv("NTFY_TOKEN", f"tk_{SECRET}")
        config = EventsConfig(webhook="HOOK", ntfy="TOPIC", token="NTFY_TOKEN")
        said = sent(store, config, [event()])
        server.go_on.set()
    kept = "".join(str(path) + path.read_text() for path in store.root.rglob("*.json"))
    assert SECRET not in said + caplog.text + kept


def test_what_a_job_printed_is_sent_without_its_keys_and_control_codes(
    store: EvidenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "ghp_" + "a1B2" * 9
    with hook() as server:
        monkeypatch.setenv("HOOK", server.url)
        sentence = f"cell a failed on box box-0: MY_API_KEY=kestrel-umbrella-77 and 401 for {key}\x1b[31m\r\nnext line"
        sentence += " and so on" * 100
        assert sent(store, HOOK, [event(sentence=sentence)]) == ""
    (body,) = server.taken
    assert key not in str(body)
    assert "kestrel" not in str(body)
    assert body["text"].startswith(
        "abl: cell a failed on box box-0: MY_API_KEY=… and 401 for …?[31m??next line and so on"
    )
    assert len(body["text"]) < 500


# Two processes


TENDS = """
import sys
from tests.unit.operations.events.test_deliver import HOOK, event, opened, sent
from pathlib import Path
sys.stdin.readline()
print(sent(opened(Path(sys.argv[1])), HOOK, [event(str(number)) for number in range(3)]))
"""


def test_two_processes_at_once_send_one_of_each(tmp_path: Path) -> None:
    opened(tmp_path)
    with hook() as server:
        command = [sys.executable, "-c", TENDS, str(tmp_path)]
        env = os.environ | {"HOOK": server.url}
        pipe = subprocess.PIPE
        both = [subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
        for process in both:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [process.communicate(timeout=120)[0] for process in both] == ["\n", "\n"]
    assert sorted(body["id"] for body in server.taken) == [event(str(number)).id for number in range(3)]
