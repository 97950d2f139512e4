"""Real servers on loopback: one for HTTP that answers or misbehaves as a test says, and addresses that say nothing."""

from __future__ import annotations

import json
import select
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
    request_queue_size = 256
    """Connections that may wait to be taken. With the usual 5, of 30 at once a busy machine resets some."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[Reply] = [reply(200, {})]
        self.routes: dict[str, list[Reply]] = {}
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.release = threading.Event()

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        """What happens with one request."""
        number = len(self.seen)
        self.seen.append((handler.command, handler.path, dict(handler.headers.items()), body))
        route = self.routes.get(f"{handler.command} {handler.path.partition('?')[0]}")
        if route is not None:
            (route.pop(0) if len(route) > 1 else route[0])(handler)
            return
        self.script[min(number, len(self.script) - 1)](handler)

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
        self.server.answer(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = _any

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Silent:
    """Addresses that take a connection and say nothing, until every one of them was asked; then they hang up.

    `calls`: how often each was asked. `together`: whether all callers still waited when the last one came.
    """

    def __init__(self, count: int) -> None:
        self.doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
        self.adapters = [f"ssh:root@127.0.0.1:{door.getsockname()[1]}" for door in self.doors]
        self.calls = [0] * count
        self.together = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        waiting: dict[int, socket.socket] = {}
        while not self._stop.is_set():
            for door in select.select(self.doors, (), (), 0.05)[0]:
                number, (caller, _) = self.doors.index(door), door.accept()
                self.calls[number] += 1
                waiting[number] = caller
            if len(waiting) == len(self.doors):
                self.together = self.together or not any(_hung_up(caller) for caller in waiting.values())
                for caller in waiting.values():
                    caller.close()
                waiting.clear()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(120)
        for door in self.doors:
            door.close()


def _hung_up(caller: socket.socket) -> bool:
    while select.select((caller,), (), (), 0)[0]:
        if not caller.recv(4096):
            return True
    return False
