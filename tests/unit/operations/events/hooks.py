"""A real HTTP server on loopback that does what webhooks do: takes a message, fails, hangs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sweepstack.operations.events import channels

SECRET = "T0KEN-abcdef0123456789"


@dataclass
class Hook:
    """`answers`: the status of each request in turn, the last for all that follow; "hang" and "cut" are no answers."""

    url: str = ""
    answers: list[int | str] = field(default_factory=lambda: [200])
    bodies: list[dict[str, Any]] = field(default_factory=list)
    """The JSON of each message; of one that is text, {"text": it}."""
    headers: list[dict[str, str]] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def taken(self) -> list[dict[str, Any]]:
        """The messages."""
        return list(self.bodies)


def hang_up_after(seconds: float, answer: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So long a server that hangs is waited for; any other may be on a busy machine, and has its minute."""
    if answer == "hang":
        monkeypatch.setattr(channels, "READ_SECONDS", seconds)


@contextmanager
def hook(*answers: int | str) -> Iterator[Hook]:
    """A server for the length of a `with`."""
    found = Hook(answers=list(answers) or [200])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with found.lock:
                answer = found.answers[min(len(found.bodies), len(found.answers) - 1)]
                is_json = self.headers["Content-Type"] == "application/json"
                found.bodies.append(json.loads(body) if is_json else {"text": body.decode()})
                found.headers.append(dict(self.headers.items()))
            if answer == "hang":
                found.go_on.wait(60)
            if not isinstance(answer, int):
                self.close_connection = True
                self.connection.close()
                return
            self.send_response(answer)
            if 300 <= answer < 400:
                self.send_header("Location", found.url)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found.url = f"http://127.0.0.1:{server.server_address[1]}/services/{SECRET}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()
