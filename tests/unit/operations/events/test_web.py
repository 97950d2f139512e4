"""A POST to a real server: taken, failing, hanging, refusing; its address nowhere to be read."""

from __future__ import annotations

import logging
import socket
import time

import pytest

from sweepstack.operations.events import channels
from tests.unit.operations.events.hooks import SECRET, hang_up_after, hook


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "BACKOFF", 0.01)
    monkeypatch.setattr(channels, "READ_SECONDS", 60.0)


def post(url: str, body: bytes = b"{}") -> str:
    return channels.post(url, body, {"Content-Type": "application/json"})


def test_a_message_is_taken() -> None:
    with hook() as server:
        assert post(server.url, b'{"text": "hello"}') == ""
    assert server.taken == [{"text": "hello"}]


@pytest.mark.parametrize("trouble", [500, 503, 429, "cut", "hang"])
def test_trouble_that_passes_is_tried_again(trouble: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    hang_up_after(2.0, trouble, monkeypatch)  # the last try is answered, and has no more time
    with hook(trouble, trouble, 204) as server:
        assert post(server.url) == ""
        assert len(server.taken) == 3


@pytest.mark.parametrize("trouble", [500, "cut", "hang"])
def test_tries_are_bounded(trouble: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    hang_up_after(0.2, trouble, monkeypatch)
    with hook(trouble) as server:
        assert post(server.url)
        ends = time.monotonic() + 60
        while len(server.taken) < channels.TRIES + 1:  # who hangs up at once may be gone before it is seen
            assert time.monotonic() < ends
            time.sleep(0.01)
        assert len(server.taken) == channels.TRIES + 1


@pytest.mark.parametrize("status", [400, 404, 302])
def test_a_no_is_no_reason_to_try_again(status: int) -> None:
    with hook(status) as server:
        assert post(server.url) == f"its server answered {status}"
        assert len(server.taken) == 1, "and a redirect is not followed: it could lead anywhere"


def test_a_refused_connection_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/{SECRET}"
        assert post(url) == "the connection was refused (4 tries)"


@pytest.mark.parametrize("url", ["", "not a url", "file:///etc/passwd", "ftp://x/y", "http://", "http://[::1"])
def test_what_is_no_web_address_is_said(url: str) -> None:
    assert post(url)


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
        assert SECRET not in post(server.url)
    assert SECRET not in caplog.text
    out, err = capfd.readouterr()
    assert SECRET not in out + err
