"""A scripted HTTP server on loopback: says what the test tells it to, and remembers every request."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.addresses import at_a_new_address


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


@dataclass(frozen=True)
class Reply:
    """`cut`: the connection ends without an answer. `body`: JSON unless it is a string."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False


Answerer = Callable[[Request], Reply]


class Loopback:
    """`routes`: ("PUT", "/api/v0/asks/7/") → a reply, a list of replies (the last stays), or a function."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.routes: dict[tuple[str, str], Reply | list[Reply] | Answerer] = {}
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                raw = self.rfile.read(length)
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                request = Request(
                    self.command, parts.path, query, json.loads(raw) if raw else None, dict(self.headers.items())
                )
                reply = outer._reply(request)
                if reply.cut:
                    self.close_connection = True
                    return
                payload = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
                data = payload.encode()
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_DELETE = _serve

            def log_message(self, *_: Any) -> None:
                pass

        self._server = at_a_new_address(lambda: ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def sent(self, method: str, path: str) -> list[Request]:
        """What was asked of one route."""
        return [request for request in self.requests if (request.method, request.path) == (method, path)]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _reply(self, request: Request) -> Reply:
        with self._lock:
            self.requests.append(request)
            route = self.routes.get((request.method, request.path))
            if isinstance(route, list):
                route = route.pop(0) if len(route) > 1 else route[0]
        if route is None:
            return Reply({"success": False, "error": "no_route", "msg": f"{request.method} {request.path}"}, 501)
        return route(request) if callable(route) else route
