"""A simulator on a port of loopback, with the faults of transport and the control surface below `/__sim__/`.

    GET  /__sim__/state                  everything, see Simulator.snapshot
    GET  /__sim__/calls                  the log of calls
    POST /__sim__/faults                 {"kind", "match", "nth", "times", "account", "box", …parameters}, or a list
    DELETE /__sim__/faults               no more faults
    POST /__sim__/advance                {"seconds"}: the clock moves on
    POST /__sim__/act                    {"act", …arguments}: something happens behind the client's back
    POST /__sim__/config                 {"latency": {pattern: seconds}, "clock_scale": virtual seconds a second}

Control calls need no key, are not logged and meet no faults.
"""

from __future__ import annotations

import io
import json
import socket
import struct
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.addresses import at_a_new_address
from tests.simulators.faults import AFTER, BEFORE, Fault
from tests.simulators.simulator import Reply, Request, Simulator

HANG_SECONDS = 600.0
PAGE = b"<!DOCTYPE html><html><head><title>%d</title></head><body><h1>error code: 1010</h1></body></html>"


class SimServer:
    """Serves one simulator until it is closed. `url` has no slash at its end. A context manager; `port` 0: any free
    one, see `tests.addresses`."""

    def __init__(self, simulator: Simulator, port: int = 0) -> None:
        self.simulator = simulator
        self.closing = threading.Event()
        self._httpd = (
            _Httpd(("127.0.0.1", port), _Connection)
            if port
            else at_a_new_address(lambda: _Httpd(("127.0.0.1", 0), _Connection))
        )
        self._httpd.owner = self
        self.url = f"http://127.0.0.1:{self._httpd.server_address[1]}"
        simulator.url = self.url
        self.api = self.url + simulator.base
        """Where clients are sent: with what the vendor's own address ends in."""
        self._thread = threading.Thread(target=self._httpd.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing answers any more: open connections are cut. Blocks until the port is free. Again: nothing."""
        if self.closing.is_set():
            return
        self.closing.set()
        self._httpd.shutdown()
        self._httpd.server_close()
        self._httpd.cut()
        self._thread.join()
        self.simulator.close()


class _Httpd(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256
    owner: SimServer

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news."""

    def cut(self) -> None:
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class _Hangup(Exception):
    """This connection gets no answer."""


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Httpd
    connection: socket.socket

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: the call log has it."""

    def _serve(self) -> None:
        split = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        request = Request(
            self.command,
            split.path,
            parse_qs(split.query, keep_blank_values=True),
            {name.lower(): value for name, value in self.headers.items()},
            self.rfile.read(length) if length else b"",
        )
        try:
            if split.path.startswith("/__sim__/"):
                self._write(control(self.server.owner, request))
            else:
                self._platform(request)
        except _Hangup:
            self.close_connection = True
        except OSError:  # the client is gone
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = _serve

    def _platform(self, request: Request) -> None:
        sim = self.server.owner.simulator
        handler = sim.find(request)
        call = f"{request.method} {request.route}"
        key = sim.key_of(request)
        if own := sim.own_keys.holder(key):
            who, request.box = own.account, own.box
        else:
            who = next((one.id for one in sim.accounts.values() if one.key == key), None)
        request.faults = sim.faults.fire(call, who, request.box or None)
        pause = sim.delay(call)
        if slow := request.faults.get("slow"):
            pause += slow.get("seconds", 1.0)
        self._pause(pause / 2)
        fault = next((rule for kind, rule in request.faults.items() if kind in BEFORE | AFTER), None)
        try:
            if fault is not None and fault.kind in BEFORE:
                reply = self._before(sim, fault)
            else:
                reply = sim.answer(request, handler)
                self._pause(pause / 2)
                if fault is not None:
                    reply = self._after(sim, fault, reply)
        except _Hangup:
            sim.log(request, 0)
            raise
        sim.log(request, reply.status)
        self._write(reply, halve=fault is not None and fault.kind == "truncated")

    def _before(self, sim: Simulator, fault: Fault) -> Reply:
        """The answer of a fault that comes instead of the call."""
        if fault.kind == "too_many":
            return sim.too_many(fault.get("retry_after", None))
        if fault.kind == "error_before":
            return sim.problem(fault.get("status", 500), "an internal error occurred")
        if fault.kind in ("html_before", "html_ok"):
            return _page(200 if fault.kind == "html_ok" else fault.get("status", 502))
        return self._hang(fault)

    def _after(self, sim: Simulator, fault: Fault, reply: Reply) -> Reply:
        """What becomes of an answer when the call was carried out."""
        if fault.kind == "error_after":
            return sim.problem(fault.get("status", 500), "an internal error occurred")
        if fault.kind == "html_after":
            return _page(fault.get("status", 502))
        if fault.kind == "truncated":
            return reply
        if fault.kind == "not_json":
            return Reply(reply.status, b"upstream connect error or disconnect", reply.headers)
        return self._hang(fault)

    def _hang(self, fault: Fault) -> Reply:
        """Closes the connection, at once or late."""
        if fault.kind.startswith("hang"):
            self._pause(fault.get("seconds", HANG_SECONDS))
        if fault.get("reset", False):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise _Hangup

    def _pause(self, seconds: float) -> None:
        """Real seconds, cut short when the server closes or the client hangs up."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._hung_up():
            if self.server.owner.closing.wait(min(left, 0.2)):
                raise _Hangup

    def _hung_up(self) -> bool:
        try:
            return self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _write(self, reply: Reply, halve: bool = False) -> None:
        """One write for head and body. `halve`: the length says all, then only half comes."""
        payload = reply.payload()
        self.send_response(reply.status)
        if reply.body is not None:
            self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(payload)))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if halve:
            payload = payload[: len(payload) // 2]
            self.close_connection = True
        wire, self.wfile = self.wfile, io.BytesIO()  # one write: two would meet Nagle and a delayed ACK
        self.end_headers()
        head, self.wfile = self.wfile.getvalue(), wire
        self.wfile.write(head if self.command == "HEAD" else head + payload)


def _page(status: int) -> Reply:
    return Reply(status, PAGE % status, content_type="text/html; charset=UTF-8")


def control(server: SimServer, request: Request) -> Reply:
    """Answers a call below `/__sim__/`. Mistakes are 400 with the reason."""
    sim = server.simulator
    try:
        told = request.json()
        match f"{request.method} {request.path.removeprefix('/__sim__')}":
            case "GET /state":
                return Reply(body=sim.snapshot())
            case "GET /calls":
                return Reply(body=sim.log_outline())
            case "POST /faults":
                for rule in told if isinstance(told, list) else [told]:
                    sim.faults.append(as_fault(rule))
                return Reply(body=sim.faults.outline())
            case "DELETE /faults":
                sim.faults.clear()
                return Reply(body=[])
            case "POST /advance":
                return Reply(body={"now": sim.clock.advance(float(told["seconds"]))})
            case "POST /act":
                arguments = {name: value for name, value in told.items() if name != "act"}
                return Reply(body={"result": sim.act(told["act"], arguments)})
            case "POST /config":
                return Reply(body=_configure(sim, told))
    except (KeyError, TypeError, ValueError, json.JSONDecodeError) as error:
        return Reply(400, {"error": str(error)})
    return Reply(404, {"error": f"no such control call: {request.method} {request.path}"})


def as_fault(told: dict[str, Any]) -> Fault:
    """A rule from its JSON form, parameters beside the other keys."""
    own = {name: told[name] for name in ("match", "nth", "times", "account", "box") if name in told}
    params = {name: value for name, value in told.items() if name not in {"kind", *own}}
    return Fault(told["kind"], **own, params=params)


def _configure(sim: Simulator, told: dict[str, Any]) -> dict[str, Any]:
    if unknown := set(told) - {"latency", "clock_scale"}:
        raise ValueError(f"no such setting: {', '.join(sorted(unknown))}")
    if "latency" in told:
        sim.latency = {str(match): float(seconds) for match, seconds in told["latency"].items()}
    if "clock_scale" in told:
        sim.clock.run(float(told["clock_scale"]))
    return {"latency": sim.latency}
