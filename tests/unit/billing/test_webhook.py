"""The webhook against a real server: taken, failing, hanging, refusing; told once; its URL nowhere to be read."""

from __future__ import annotations

import logging
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sweepstack.billing import alerts, webhook
from sweepstack.billing.alerts import Notice, message, tell
from sweepstack.billing.budget import Budget, Use
from sweepstack.billing.forecast import Forecast
from sweepstack.billing.webhook import post
from sweepstack.evidence.store import EvidenceStore
from tests.unit.billing.hooks import SECRET, hook

SEEN = Forecast(72.4, 34.0, 3.0)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "BACKOFF", 0.01)
    monkeypatch.setattr(webhook, "READ_SECONDS", 60.0)


def hang_up_after(seconds: float, trouble: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So long a server that hangs is waited for; any other may be on a busy machine, and has a minute."""
    if trouble == "hang":
        monkeypatch.setattr(webhook, "READ_SECONDS", seconds)


@pytest.fixture
def store(tmp_path: Path) -> EvidenceStore:
    return opened(tmp_path)


def opened(tmp_path: Path) -> EvidenceStore:
    return EvidenceStore.found(f"file://{socket.gethostname()}{tmp_path}/evidence", "abc", "project", "stack")


def use(usd: float, **known: Any) -> Use:
    return Use(Budget(usd=60, webhook="HOOK", **known), usd, 5.0)


def told(store: EvidenceStore, spent: Use) -> str | None:
    """What became of it; None where there was nothing to tell."""
    alert = tell(store, spent.budget, spent, SEEN, stack="abl", per_hour=1.9)
    return None if alert is None else alert.wait(20)


# The request


def test_a_message_is_taken() -> None:
    with hook() as server:
        assert post(server.url, {"text": "hello"}) == ""
    assert server.taken == [{"text": "hello"}]


@pytest.mark.parametrize("trouble", [500, 503, 429, "cut", "hang"])
def test_trouble_that_passes_is_tried_again(trouble: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    hang_up_after(2.0, trouble, monkeypatch)  # the last try is answered, and has no more time
    with hook(trouble, trouble, 204) as server:
        assert post(server.url, {}) == ""
        assert len(server.taken) == 3


@pytest.mark.parametrize("trouble", [500, "cut", "hang"])
def test_tries_are_bounded(trouble: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    hang_up_after(0.2, trouble, monkeypatch)
    with hook(trouble) as server:
        assert post(server.url, {})
        ends = time.monotonic() + 60
        while len(server.taken) < webhook.TRIES + 1:  # who hangs up at once may be gone before it is seen
            assert time.monotonic() < ends
            time.sleep(0.01)
        assert len(server.taken) == webhook.TRIES + 1


@pytest.mark.parametrize("status", [400, 404, 302])
def test_a_no_is_no_reason_to_try_again(status: int) -> None:
    with hook(status) as server:
        assert post(server.url, {}) == f"its server answered {status}"
        assert len(server.taken) == 1, "and a redirect is not followed: it could lead anywhere"


def test_a_refused_connection_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/{SECRET}"
        assert post(url, {}) == "the connection was refused (4 tries)"


@pytest.mark.parametrize("url", ["", "not a url", "file:///etc/passwd", "ftp://x/y", "http://", "http://[::1"])
def test_what_is_no_web_address_is_said(url: str) -> None:
    assert post(url, {})


@pytest.mark.parametrize("trouble", [500, 404, "cut", "hang"])
def test_the_url_is_in_no_word_and_no_log(
    trouble: int | str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hang_up_after(0.2, trouble, monkeypatch)
    caplog.set_level(logging.WARNING)
    with hook(trouble) as server:
        assert SECRET not in post(server.url, {})
    assert SECRET not in caplog.text
    out, err = capfd.readouterr()
    assert SECRET not in out + err


# Who is told, and when


def test_each_threshold_is_told_once(store: EvidenceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hook() as server:
        monkeypatch.setenv("HOOK", server.url)
        assert told(store, use(30)) is None
        assert told(store, use(50)) == ""
        assert told(store, use(51)) is None
        assert told(opened(tmp_path), use(52)) is None, "another command, later"
        assert told(store, use(61)) == ""
        assert told(store, use(99)) is None
    assert [body["threshold"] for body in server.taken] == [0.8, 1.0]
    assert SECRET not in "".join(path.read_text() for path in store.root.rglob("*.json"))


def test_a_jump_past_both_is_one_message(store: EvidenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with hook() as server:
        monkeypatch.setenv("HOOK", server.url)
        assert told(store, use(70)) == ""
        assert told(store, use(70)) is None
    assert [body["threshold"] for body in server.taken] == [1.0]


def test_a_raised_budget_begins_anew(store: EvidenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with hook() as server:
        monkeypatch.setenv("HOOK", server.url)
        assert told(store, use(61)) == ""
        raised = Use(Budget(usd=70, webhook="HOOK"), 61, 5.0)
        assert told(store, raised) == ""
    assert [body["budget"]["usd"] for body in server.taken] == [60, 70]


def test_what_failed_is_told_by_who_looks_next(store: EvidenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with hook(404, 200) as server:
        monkeypatch.setenv("HOOK", server.url)
        assert told(store, use(50)) == "the webhook (HOOK) was not told that 80 % is used: its server answered 404"
        assert told(store, use(50)) == ""
        assert len(server.taken) == 2


def test_two_at_once_send_one(store: EvidenceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hook() as server:
        monkeypatch.setenv("HOOK", server.url)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: told(opened(tmp_path), use(50)), range(8)))
        assert len(server.taken) == 1


def test_a_sender_that_died_is_no_message(store: EvidenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    long_ago = datetime.now(UTC) - 2 * alerts.STALE
    half = Notice(threshold=0.8, usd=60, hours=None, state="sending", at=long_ago)
    store.write_record("notices/60usd-0h-0.8.json", half)
    with hook() as server:
        monkeypatch.setenv("HOOK", server.url)
        assert told(store, use(50)) == ""
        store.write_record("notices/60usd-0h-0.8.json", half.model_copy(update={"at": datetime.now(UTC)}))
        assert told(store, use(50)) is None, "somebody is at it"
    assert len(server.taken) == 1


def test_without_its_variable_nobody_is_told_and_that_is_said(
    store: EvidenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOOK", raising=False)
    assert told(store, use(50)) == "HOOK is not set here, so no alert was sent that 80 % is used"


def test_without_a_webhook_nothing_is_sent(store: EvidenceStore) -> None:
    spent = Use(Budget(usd=60), 61, 5.0)
    assert tell(store, spent.budget, spent, SEEN, stack="abl", per_hour=1.9) is None


def test_a_hang_holds_nobody_up(store: EvidenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tell` returns while the server has not answered; `wait(0)` says so."""
    with hook("hang") as server:
        monkeypatch.setenv("HOOK", server.url)
        alert = tell(store, use(50).budget, use(50), SEEN, stack="abl", per_hour=1.9)
        assert alert is not None
        assert "has not answered" in alert.wait(0)
        server.go_on.set()


def test_the_body_says_it_to_people_and_to_programs() -> None:
    body = message(use(61, stop=True).budget, use(61, stop=True), SEEN, stack="abl", threshold=1.0, per_hour=1.9)
    assert body["text"] == (
        "abl: 100 % of the budget is used: $61.00 of $60.00 (102 %); about $72.40 at the end; $1.90/h goes on; nothing "
        "more is rented; boxes are stopped where they can be. Look: sweepctl status --stack abl"
    )
    assert body["used"] == {"usd": 61, "hours": 5.0, "fraction": 1.0167}
    assert set(body) == {"text", "stack", "threshold", "used", "budget", "projected", "per_hour"}
