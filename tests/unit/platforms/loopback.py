"""A server on loopback that is told what to say of each request, as it reads it, and remembers them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.addresses import at_a_new_address
from tests.unit.loopback import Server, cut, reply


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
        self._server = at_a_new_address(Server)
        self._server.answer = self._answer  # type: ignore[method-assign]
        self.url = self._server.url
        self._server.start()

    def sent(self, method: str, path: str) -> list[Request]:
        """What was asked of one route."""
        return [request for request in self.requests if (request.method, request.path) == (method, path)]

    def close(self) -> None:
        self._server.stop()

    def _answer(self, handler: BaseHTTPRequestHandler, raw: bytes) -> None:
        parts = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        body = json.loads(raw) if raw else None
        said = self._reply(Request(handler.command, parts.path, query, body, dict(handler.headers.items())))
        if said.cut:
            cut(handler)
        else:
            body = said.body.encode() if isinstance(said.body, str) else json.dumps(said.body).encode()
            reply(said.status, body, **said.headers)(handler)

    def _reply(self, request: Request) -> Reply:
        with self._lock:
            self.requests.append(request)
            route = self.routes.get((request.method, request.path))
            if isinstance(route, list):
                route = route.pop(0) if len(route) > 1 else route[0]
        if route is None:
            return Reply({"success": False, "error": "no_route", "msg": f"{request.method} {request.path}"}, 501)
        return route(request) if callable(route) else route
