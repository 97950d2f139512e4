"""Servers of trackers as they should not be: each is real, on this machine, and counts who comes."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """MLflow's REST API as far as it is asked: one experiment, runs by their tag, parameters that never change. And
    Trackio's, which answers an error of its own with 400."""

    def do_POST(self) -> None:
        server: Any = self.server
        text = self.rfile.read(int(self.headers["Content-Length"]))
        body = json.loads(text) if "/mlflow/" in self.path or self.path == "/api/bulk_log" else {}
        path = self.path.rpartition("mlflow/")[2]
        server.asked.append((path, body))
        if path == "runs/create":
            tags = {pair["key"]: pair["value"] for pair in body["tags"]}
            server.runs[tags["sweepstack.run"]] = {"info": {"run_id": f"r{len(server.runs)}"}, "data": {"params": []}}
            return self._answer({"run": server.runs[tags["sweepstack.run"]]})
        if path == "runs/search":
            wanted = body["filter"].partition("= ")[2].strip("'")
            return self._answer({"runs": [server.runs[wanted]] if wanted in server.runs else []})
        for run in server.runs.values():
            if run["info"]["run_id"] == body.get("run_id"):
                run["data"]["params"] += body.get("params", [])
        return self._answer({})

    def do_GET(self) -> None:
        self._answer({"api_version": 1} if self.path == "/version" else {"experiment": {"experiment_id": "7"}})

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, said: dict[str, Any]) -> None:
        server: Any = self.server
        time.sleep(server.pause)
        server.keys.append(self.headers.get("Authorization"))
        data = json.dumps(said if server.status == 200 else {"message": f"no {self.headers['Authorization']}"}).encode()
        self.send_response(server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def server(status: int = 200, port: int = 0) -> Iterator[Any]:
    """One that answers each request with this status, after `pause` seconds; a refusal repeats the key that it got."""
    found: Any = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    found.asked, found.keys, found.runs, found.status, found.pause = [], [], {}, status, 0.0
    found.uri = f"http://127.0.0.1:{found.server_port}"
    threading.Thread(target=found.serve_forever, daemon=True).start()
    try:
        yield found
    finally:
        found.shutdown()
        found.server_close()


class Hangs:
    """Accepts each connection, and never answers. `came`: how many came."""

    def __init__(self, port: int) -> None:
        self._listens = socket.create_server(("127.0.0.1", port), backlog=64)
        self.uri = f"http://127.0.0.1:{self._listens.getsockname()[1]}"
        self.came: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self.came.append(self._listens.accept()[0])

    def close(self) -> None:
        """Ends all connections, and leaves the port to another server."""
        self._listens.shutdown(socket.SHUT_RDWR)  # a close alone leaves it to the thread that waits there
        for one in (self._listens, *self.came):
            one.close()


@contextmanager
def hangs(port: int = 0) -> Iterator[Hangs]:
    """A server that hangs."""
    found = Hangs(port)
    try:
        yield found
    finally:
        found.close()


def down() -> str:
    """The address of a port of this machine where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return f"http://127.0.0.1:{one.getsockname()[1]}"
