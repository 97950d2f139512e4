"""Serves a repository on loopback."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from tests.simulators.forges import github, gitlab
from tests.simulators.forges.core import JOB_TOKEN, TOKEN, Call, Forge, Refused, Route


@contextmanager
def serving(kind: str) -> Iterator[Forge]:
    """Serves one repository; `url` is its REST API's base, as the job's variable has it."""
    forge = Forge(kind)
    rules = github if kind == "github" else gitlab

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            asked = f"{self.command} {parts.path}"
            forge.asked.append(asked)
            for pattern in [pattern for pattern in forge.between if re.search(pattern, asked)]:
                forge.between.pop(pattern)()
            fault = next((one for one in forge.faults if one.times and one.match.search(asked)), None)
            headers: dict[str, str] = {}
            if fault is not None:
                fault.times -= 1
            try:
                if fault is not None and not fault.carried:
                    raise Refused(fault.status, fault.text, body=fault.text, headers=fault.headers)
                status, body, headers = self._carried_out(parts, raw)
                if fault is not None:
                    raise Refused(fault.status, fault.text, body=fault.text, headers=fault.headers)
            except Refused as error:
                status, headers = error.status, error.headers
                body = error.body if error.body is not None else rules.refusal(error)
            if self.command != "GET" and status < 300 and forge.lose and "/graphql" not in asked:
                forge.lose -= 1
                self.close_connection = True
                return
            self._answer(status, body, headers)

        do_POST = do_PATCH = do_PUT = do_GET

        def _carried_out(self, parts: SplitResult, raw: bytes) -> tuple[int, Any, dict[str, str]]:
            sent = {name.lower(): value for name, value in self.headers.items()}
            assert TOKEN not in self.path
            assert JOB_TOKEN not in self.path
            rules.headers(forge, self.command, sent, raw)
            try:
                body = json.loads(raw) if raw else {}
            except ValueError:
                raise Refused(400, "Problems parsing JSON") from None
            if not isinstance(body, dict):
                raise Refused(400, "Body should be a JSON object")
            call = Call((), dict(parse_qsl(parts.query, keep_blank_values=True)), body, path=parts.path)
            who = rules.who(sent)
            for base, table in rules.tables(forge):
                found = _found(table, self.command, parts.path, base)
                if found is not None:
                    one, call.at = found
                    if unknown := (set(call.query) - one.query) | (set(call.body) - one.body):
                        raise Refused(422, f"no field of this call: {', '.join(sorted(unknown))}")
                    rules.allowed(forge, one, who)
                    status, answer = one.handle(forge, call)
                    return status, answer, {**rules.always(), **call.headers}
            raise Refused(404, "Not Found")

        def _answer(self, status: int, body: Any, headers: dict[str, str]) -> None:
            # A proxy's page and a rate limit come as plain text; all else is JSON.
            plain = isinstance(body, str)
            text = body.encode() if plain else json.dumps(body).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "text/plain" if plain else "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    host = f"http://127.0.0.1:{server.server_address[1]}"
    # GitHub's own server has REST below /api/v3 and GraphQL beside it: a client that joins the two gets a 404.
    forge.url, forge.graphql = f"{host}{rules.BASE}", f"{host}/api/graphql"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield forge
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _found(table: list[Route], verb: str, path: str, base: str) -> tuple[Route, tuple[str, ...]] | None:
    if not path.startswith(base):
        return None
    for one in table:
        found = one.path.fullmatch(path.removeprefix(base))
        if one.verb == verb and found:
            return one, found.groups()
    return None
