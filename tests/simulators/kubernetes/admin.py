"""The tests' own way to the API server: plain requests with an administrator's certificate, and no client library.

So what a test sets up and sees does not depend on what it tests.
"""

from __future__ import annotations

import contextlib
import json
import ssl
from pathlib import Path
from typing import Any

import httpx


class Refused(AssertionError):
    """The API server answered no. `code`: the status; `reason`: as the server names it."""

    def __init__(self, said: httpx.Response) -> None:
        super().__init__(f"{said.request.method} {said.request.url.path}: {said.status_code} {said.text[:2000]}")
        self.code = said.status_code
        with contextlib.suppress(ValueError):
            self.reason = str(said.json().get("reason", ""))

    reason = ""


class Admin:
    """Requests of one user. Paths as the API has them, objects as it says them."""

    def __init__(self, server: str, authority: Path, certificate: Path, key: Path) -> None:
        self.server = server
        self._context = ssl.create_default_context(cafile=str(authority))
        self._context.load_cert_chain(str(certificate), str(key))
        self._client = httpx.Client(base_url=server, verify=self._context, timeout=30, trust_env=False)

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """{} where there is no such thing."""
        with contextlib.suppress(Refused):
            return self.ask("GET", path, params=query)
        return {}

    def list(self, path: str, **query: str) -> list[dict[str, Any]]:
        """The items of a list, which must be there."""
        items: list[dict[str, Any]] = self.ask("GET", path, params=query)["items"]
        return items

    def make(self, path: str, thing: dict[str, Any]) -> dict[str, Any]:
        """Creates it in the list at `path`."""
        return self.ask("POST", path, json=thing)

    def patch(self, path: str, what: dict[str, Any]) -> dict[str, Any]:
        """A merge patch."""
        kind = {"Content-Type": "application/merge-patch+json"}
        return self.ask("PATCH", path, content=json.dumps(what), headers=kind)

    def delete(self, path: str, **options: Any) -> None:
        """Asks for its end. No error where it is gone already. `options`: of the deletion, as the API names them."""
        try:
            self.ask("DELETE", path, json=options)
        except Refused as refused:
            if refused.code != 404:
                raise

    def text(self, path: str) -> str:
        """What it answers, as it is: a log, or the events of a watch that ends."""
        said = self._client.get(path)
        if said.status_code >= 400:
            raise Refused(said)
        return said.text

    def ask(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """One request. Raises Refused, and httpx.TransportError where no server answers."""
        said = self._client.request(method, path, **more)
        if said.status_code >= 400:
            raise Refused(said)
        answer: dict[str, Any] = said.json()
        return answer

    def answers(self, path: str = "/readyz") -> bool:
        """Whether the server says yes to this now."""
        try:
            return self._client.get(path, timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        self._client.close()
