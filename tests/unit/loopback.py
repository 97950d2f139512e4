"""A real HTTP server on loopback that answers, or misbehaves, as a test says."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[[BaseHTTPRequestHandler], None]


def reply(status: int, body: Any = None, *, kind: str = "application/json", **headers: str) -> Reply:
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        if raw:
            handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(raw)))
        handler.end_headers()
        handler.wfile.write(raw)

    return send


def cut(handler: BaseHTTPRequestHandler) -> None:
    """The request was read; the connection ends without a word."""
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def truncated(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.write(b'{"pods": [')
    handler.wfile.flush()
    cut(handler)


HTML = reply(200, b"<html>welcome to the hotel</html>", kind="text/html")
PROBLEM = "application/problem+json"


class Server(ThreadingHTTPServer):
    """Answers with `routes["GET /path"]`, else with `script`: one entry a request, the last one for ever."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[Reply] = [reply(200, {})]
        self.routes: dict[str, list[Reply]] = {}
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.release = threading.Event()

    def hang(self, handler: BaseHTTPRequestHandler) -> None:
        self.release.wait(60)

    def drip(self, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.end_headers()
        while not self.release.wait(0.02):
            try:
                handler.wfile.write(b" ")
            except OSError:
                return

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self.release.set()
        self.shutdown()
        self.server_close()

    @property
    def methods(self) -> list[str]:
        return [method for method, *_ in self.seen]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        number = len(self.server.seen)
        self.server.seen.append((self.command, self.path, dict(self.headers.items()), body))
        route = self.server.routes.get(f"{self.command} {self.path.partition('?')[0]}")
        if route is not None:
            (route.pop(0) if len(route) > 1 else route[0])(self)
            return
        self.server.script[min(number, len(self.server.script) - 1)](self)

    do_GET = do_POST = do_DELETE = do_PATCH = _any

    def log_message(self, format: str, *args: Any) -> None:
        pass
