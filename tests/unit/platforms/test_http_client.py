"""The way to an HTTP API, against a real server on loopback that misbehaves as asked."""

from __future__ import annotations

import logging
import socket
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from sweepstack.onbox.common.errors import (
    InsufficientFunds,
    NotAuthorized,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    RequestRefused,
    Unreachable,
    Unsupported,
)
from sweepstack.platforms.common import http_client
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.platforms.common.http_client import HttpClient
from tests.addresses import at_a_new_address
from tests.unit.loopback import HTML, PROBLEM, Server, cut, reply, truncated

KEY = "sk-live-0123456789abcdef"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(http_client, "BACKOFF_SECONDS", 0.001)
    server = at_a_new_address(Server)
    server.start()
    yield server
    server.stop()


def client(server: Server, **changes: Any) -> HttpClient:
    return HttpClient("Acme", server.url, KEY, key_hint="ACME_API_KEY, or ~/.acme/key", **changes)


def test_a_request_carries_key_and_agent_in_its_headers_and_the_key_nowhere_else(server: Server) -> None:
    server.script = [reply(200, {"pods": []})]
    assert client(server).read("/v2/pods", {"limit": "10"}).data == {"pods": []}
    ((method, path, headers, _),) = server.seen
    assert (method, path) == ("GET", "/v2/pods?limit=10")
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert headers["User-Agent"].startswith("sweepstack/")


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_read_survives_what_a_write_does_not_repeat(server: Server, status: int) -> None:
    server.script = [reply(status, {"detail": "oops"}), reply(200, {"ok": 1})]
    assert client(server).read("/x").data == {"ok": 1}
    assert server.methods == ["GET", "GET"]
    server.seen.clear()
    with pytest.raises(OutcomeUnknown, match="may have been carried out"):
        client(server).write("POST", "/x", {"a": 1})
    assert server.methods == ["POST"]


@pytest.mark.parametrize("broken", ["cut", "truncated", "html", "html 403", "html 404", "redirect", "408"])
def test_an_answer_that_is_none_leaves_a_write_unknown_and_a_read_unreachable(server: Server, broken: str) -> None:
    page = b"<html>error 1010</html>"
    server.script = [
        {
            "cut": cut,
            "truncated": truncated,
            "html": HTML,
            "html 403": reply(403, page, kind="text/html"),
            "html 404": reply(404, page, kind="text/html"),
            "redirect": reply(302, None, Location="https://elsewhere.test/"),
            "408": reply(408, {"detail": "slow"}),
        }[broken]
    ]
    with pytest.raises(OutcomeUnknown):
        client(server).write("POST", "/x", {})
    assert server.methods == ["POST"]
    with pytest.raises(Unreachable):
        client(server).read("/x")


def test_a_read_gives_up_after_four_attempts(server: Server) -> None:
    server.script = [cut]
    with pytest.raises(Unreachable, match="nothing was changed"):
        client(server).read("/x")
    assert server.methods == ["GET"] * http_client.ATTEMPTS


@pytest.mark.parametrize("headers", [{}, {"Retry_After": "0"}, {"Retry_After": "Wed, 21 Oct 2015 07:28:00 GMT"}])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_too_many_requests_is_asked_again_for_every_method(server: Server, method: str, headers: Any) -> None:
    limited = reply(429, {"detail": "rate limit exceeded for the minute window"}, kind=PROBLEM, **headers)
    server.script = [*[limited] * 6, reply(200, {"id": 1})]
    asked = client(server)
    answer = asked.read("/x") if method == "GET" else asked.write("POST", "/x", {})
    assert answer.data == {"id": 1}
    assert len(server.seen) == 7


def test_too_many_for_ever_ends(server: Server) -> None:
    server.script = [reply(429, {})]
    with pytest.raises(RateLimited, match="nothing was done"):
        client(server).write("POST", "/x", {})
    assert len(server.seen) == http_client.LIMITED_ATTEMPTS


def test_a_limit_that_lasts_longer_than_the_deadline_is_said_at_once(server: Server) -> None:
    server.script = [reply(429, {"detail": "slow down"}, Retry_After="3600")]
    with pytest.raises(RateLimited, match="nothing was done") as caught:
        client(server).write("POST", "/x", {}, deadline=Deadline(20))
    assert caught.value.retry_after == http_client.MOST_BACKOFF_SECONDS
    assert len(server.seen) == 1


def test_after_a_limit_no_thread_asks_before_its_time(server: Server) -> None:
    server.script = [reply(429, {}, Retry_After="50"), reply(200, {})]
    asked = client(server)
    for _ in range(2):
        with pytest.raises(RateLimited):
            asked.read("/x", deadline=Deadline(1))
    assert len(server.seen) == 1


@pytest.mark.parametrize("slow", ["hang", "drip"])
def test_nobody_waits_longer_than_the_deadline(server: Server, slow: str) -> None:
    server.script = [getattr(server, slow)]
    with pytest.raises(OutcomeUnknown):
        client(server).write("POST", "/x", {}, deadline=Deadline(0.3))
    assert not server.release.is_set()
    with pytest.raises(Unreachable):
        client(server).read("/x", deadline=Deadline(0.3))


def test_what_was_never_sent_is_unreachable_for_a_write_too(server: Server) -> None:
    free = socket.socket()
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
    free.close()
    asked = HttpClient("Acme", f"http://127.0.0.1:{port}", KEY, key_hint="ACME_API_KEY")
    with pytest.raises(Unreachable):
        asked.write("POST", "/x", {})


def test_a_body_without_an_end_is_not_read_to_it(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "BODY_BYTES", 1000)
    server.script = [reply(200, {"pods": ["x" * 2000]})]
    with pytest.raises(Unreachable):
        client(server).read("/x")
    assert len(server.seen) == 1
    with pytest.raises(OutcomeUnknown):
        client(server).write("POST", "/x", {})


@pytest.mark.parametrize(
    ("status", "kind"), [(401, NotAuthorized), (402, InsufficientFunds), (410, Unsupported)], ids=str
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_refusals_that_mean_the_same_everywhere_are_errors(
    server: Server, status: int, kind: type[PlatformError], method: str
) -> None:
    server.script = [reply(status, {"title": "No", "detail": "because"}, kind=PROBLEM)]
    with pytest.raises(kind, match="because"):
        client(server).read("/x") if method == "GET" else client(server).write("POST", "/x", {})
    assert len(server.seen) == 1


@pytest.mark.parametrize("status", [400, 403, 404, 409, 413, 422])
def test_other_refusals_are_the_adapters_to_read(server: Server, status: int) -> None:
    body = {"title": "Bad", "status": status, "detail": "not this", "errors": ["$: additional property 'x'"]}
    server.script = [reply(status, body, kind=PROBLEM)]
    asked = client(server)
    answer = asked.write("POST", "/x", {})
    assert (answer.ok, answer.status, answer.text) == (False, status, "not this; $: additional property 'x'")
    error = asked.refusal(answer, "a box")
    assert isinstance(error, NotAuthorized if status == 403 else RequestRefused)
    assert "not this" in str(error)


def test_nothing_is_a_fine_answer_to_a_delete(server: Server) -> None:
    server.script = [reply(204)]
    answer = client(server).write("DELETE", "/x")
    assert (answer.ok, answer.status, answer.data) == (True, 204, None)


def test_no_error_log_or_chained_exception_shows_the_key(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    echo = {"detail": f"bad key {KEY} in Authorization: Bearer {KEY}\n\x1b[2Jmore", "errors": [{"message": KEY}]}
    caplog.set_level(logging.DEBUG)
    for status in (400, 401, 402, 403, 410, 429, 500):
        server.script = [reply(status, echo)]
        asked = client(server)
        for method in ("GET", "POST"):
            until = Deadline(0.2)
            try:
                answer = (
                    asked.read("/x", deadline=until) if method == "GET" else asked.write(method, "/x", deadline=until)
                )
                error: PlatformError = asked.refusal(answer, "it")
            except PlatformError as caught:
                error = caught
            shown = "".join(traceback.format_exception(error)) + str(error)
            assert KEY not in shown
            assert "\x1b" not in shown
            assert KEY not in repr(vars(error))
    server.script = [cut]
    with pytest.raises(OutcomeUnknown) as caught_cut:
        client(server).write("POST", "/x")
    assert caught_cut.value.__context__ is None
    assert KEY not in caplog.text


@pytest.mark.parametrize("url", ["http://api.acme.test", "ftp://127.0.0.1", "https://me:pw@api.acme.test", "", "//x"])
def test_the_key_is_not_sent_in_the_clear(url: str) -> None:
    with pytest.raises(RequestRefused):
        HttpClient("Acme", url, KEY, key_hint="ACME_API_KEY")


def test_a_cancel_ends_the_waiting(server: Server) -> None:
    server.script = [reply(429, {})]
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(Unreachable):
        client(server).write("POST", "/x", {}, deadline=Deadline(60, cancelled))
    assert len(server.seen) <= 1
