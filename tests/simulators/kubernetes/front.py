"""What may stand in front of an API server: an HTTPS proxy with a certificate of its own, which plays faults of a way.

It knows one user, by a bearer token, and passes each request on with an administrator's certificate; what a pod's exec
upgrades its connection to is passed through as it is. Faults of transport are those of `tests.simulators.faults`, for
calls named `METHOD /path`; beside them `revoked`: the token is none that the API server knows, which that answers.
`slow` is not played.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.addresses import at_a_new_address
from tests.simulators.faults import AFTER, BEFORE, Fault, FaultPlan
from tests.simulators.kubernetes.cluster import KubernetesCluster
from tests.simulators.kubernetes.pki import Authority, write_kubeconfig

REVOKED = "revoked"
ANSWER_SECONDS = 60.0
HANG_SECONDS = 600.0
PAGE = b"<!DOCTYPE html><html><head><title>%d</title></head><body><h1>error code: 1010</h1></body></html>"
STATUS = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"%s","code":%d}'
Answer = tuple[int, str, bytes, dict[str, str]]


class Front:
    """`kubeconfig`: of its one user. `faults`: what goes wrong. `instead`: another namespace, of a name as long, which
    answers under the name of `namespace`: another cluster, say. `made`: is told of each request that the API server
    carried out, before that is answered."""

    def __init__(self, cluster: KubernetesCluster, folder: Path, token: str, namespace: str) -> None:
        self.faults = FaultPlan(kinds=(REVOKED,))
        self.token, self.namespace, self.instead = token, namespace, ""
        self.made: Callable[[str, str], None] = lambda _method, _path: None
        self.closing = threading.Event()
        self._host, _, port = cluster.server.removeprefix("https://").partition(":")
        self._port = int(port)
        authority = cluster.authority
        self._open_tls = ssl.create_default_context(cafile=str(authority.certificate))
        self._known_tls = ssl.create_default_context(cafile=str(authority.certificate))
        self._known_tls.load_cert_chain(*(str(authority.folder / f"admin.{kind}") for kind in ("crt", "key")))
        own = Authority(folder)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(*(str(path) for path in own.issue("front", "front", hosts=["127.0.0.1"])))
        self._httpd = at_a_new_address(lambda: _Httpd(("127.0.0.1", 0), _Connection))
        self._httpd.owner = self
        server = f"https://127.0.0.1:{self._httpd.server_address[1]}"
        self.kubeconfig = write_kubeconfig(
            folder / "config", server, own.certificate, "tests", {"token": token}, namespace=namespace
        )
        self._thread = threading.Thread(target=self._httpd.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Nothing answers any more. Idempotent."""
        if not self.closing.is_set():
            self.closing.set()
            self._httpd.shutdown()
            self._httpd.server_close()
            self._thread.join()

    def wrapped(self, connection: socket.socket) -> ssl.SSLSocket:
        return self._tls.wrap_socket(connection, server_side=True)

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes, known: bool) -> Answer:
        """What the API server answers: to the administrator, or to whom it does not know."""
        way = http.client.HTTPSConnection(
            self._host, self._port, timeout=ANSWER_SECONDS, context=self._known_tls if known else self._open_tls
        )
        ours, theirs = self.namespace.encode(), self.instead.encode()
        with contextlib.closing(way):
            if theirs:
                path, body = path.replace(self.namespace, self.instead), body.replace(ours, theirs)
            way.request(method, path, body or None, headers)
            said = way.getresponse()
            data = said.read()
        kept = {name: value for name, value in said.getheaders() if name.lower() in ("content-type", "retry-after")}
        if not theirs and said.status < 300:
            self.made(method, path)
        return said.status, said.reason, data.replace(theirs, ours) if theirs else data, kept

    def stream(self) -> ssl.SSLSocket:
        """A connection to the API server, as the administrator."""
        plain = socket.create_connection((self._host, self._port), timeout=ANSWER_SECONDS)
        return self._known_tls.wrap_socket(plain, server_hostname=self._host)


class _Httpd(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256
    owner: Front

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news."""


class _Hangup(Exception):
    """This connection gets no answer."""


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Httpd

    def setup(self) -> None:
        self.request = self.server.owner.wrapped(self.request)
        super().setup()

    def finish(self) -> None:
        super().finish()
        with contextlib.suppress(OSError):
            self.request.close()

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        try:
            self._answer(body)
        except _Hangup:
            self.close_connection = True
        except OSError:  # the client is gone, or the API server
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _answer(self, body: bytes) -> None:
        front = self.server.owner
        fired = front.faults.fire(f"{self.command} {self.path.partition('?')[0]}")
        fault = next((rule for kind, rule in fired.items() if kind in BEFORE | AFTER), None)
        if fault is not None and fault.kind in BEFORE:
            self._write(*self._before(fault))
            return
        known = REVOKED not in fired and self.headers.get("Authorization") == f"Bearer {front.token}"
        if "upgrade" in (self.headers.get("Connection") or "").lower() and known:
            self._through()
            return
        passed = {name: self.headers[name] for name in ("Accept", "Content-Type") if name in self.headers}
        if not known:
            passed["Authorization"] = "Bearer of-another-cluster"
        answer = front.ask(self.command, self.path, passed, body, known)
        self._write(*(answer if fault is None else self._after(fault, answer)),
                    halve=fault is not None and fault.kind == "truncated")  # fmt: skip

    def _before(self, fault: Fault) -> Answer:
        if fault.kind == "too_many":
            after = fault.get("retry_after", None)
            status, reason, data, headers = _problem(429)
            return status, reason, data, {**headers, **({} if after is None else {"Retry-After": str(after)})}
        if fault.kind == "error_before":
            return _problem(fault.get("status", 500))
        if fault.kind in ("html_before", "html_ok"):
            return _page(200 if fault.kind == "html_ok" else fault.get("status", 502))
        return self._hang(fault)

    def _after(self, fault: Fault, answer: Answer) -> Answer:
        if fault.kind == "error_after":
            return _problem(fault.get("status", 500))
        if fault.kind == "html_after":
            return _page(fault.get("status", 502))
        if fault.kind == "not_json":
            return (*answer[:2], b"upstream connect error or disconnect", answer[3])
        return answer if fault.kind == "truncated" else self._hang(fault)

    def _hang(self, fault: Fault) -> Answer:
        ends = time.monotonic() + (HANG_SECONDS if fault.kind.startswith("hang") else 0)
        while time.monotonic() < ends and not self._hung_up():
            if self.server.owner.closing.wait(0.1):
                break
        if fault.get("reset", False):
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise _Hangup

    def _hung_up(self) -> bool:
        self.request.setblocking(False)
        try:
            return bool(self.request.recv(1) == b"")
        except (ssl.SSLWantReadError, BlockingIOError):
            return False
        except OSError:
            return True
        finally:
            self.request.setblocking(True)

    def _through(self) -> None:
        """Until either side closes."""
        with self.server.owner.stream() as far:
            head = [f"{self.command} {self.path} HTTP/1.1", "Host: kubernetes"]
            head += [f"{name}: {value}" for name, value in self.headers.items()
                     if name.lower() not in ("host", "authorization")]  # fmt: skip
            far.sendall(("\r\n".join(head) + "\r\n\r\n").encode())
            far.settimeout(None)
            back = threading.Thread(target=_pump, args=(far, self.request), daemon=True)
            back.start()
            _pump(self.request, far)
            back.join(ANSWER_SECONDS)
        self.close_connection = True

    def _write(self, status: int, reason: str, data: bytes, headers: dict[str, str], halve: bool = False) -> None:
        head = [f"HTTP/1.1 {status} {reason}", f"Content-Length: {len(data)}"]
        head += [f"{name}: {value}" for name, value in headers.items()]
        if halve:
            data = data[: len(data) // 2]
            self.close_connection = True
        self.wfile.write(("\r\n".join(head) + "\r\n\r\n").encode() + data)


def _problem(status: int) -> Answer:
    reason = http.client.responses[status]
    return status, reason, STATUS % (b"an internal error occurred", status), {"Content-Type": "application/json"}


def _page(status: int) -> Answer:
    return status, http.client.responses[status], PAGE % status, {"Content-Type": "text/html; charset=UTF-8"}


def _pump(source: ssl.SSLSocket, sink: ssl.SSLSocket) -> None:
    with contextlib.suppress(OSError, ValueError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            socket.socket.shutdown(end, socket.SHUT_RDWR)
