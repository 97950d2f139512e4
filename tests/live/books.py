"""What a real platform itself says that an account rents: asked by plain HTTP, past the adapter that is under test."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

SECONDS = 30.0
_PAGES = 100


@dataclass(frozen=True)
class Entry:
    """One thing that may bill. `kind`: box or volume."""

    kind: str
    id: str
    tag: str


@dataclass(frozen=True)
class Books:
    """One platform's. `key` names the variable that holds the key, `console` where a person can look."""

    platform: str
    key: str
    url: str
    base: str
    console: str
    boxes: Callable[[Books], list[Entry]]
    volumes: Callable[[Books], list[Entry]]
    end: Callable[[Books, str], None]

    def client(self) -> httpx.Client:
        """A client of the platform, with the key in its header."""
        base = os.environ.get(self.url, "").strip().rstrip("/") or self.base
        headers = {"Authorization": f"Bearer {os.environ[self.key].strip()}", "User-Agent": "sweepstack-live"}
        return httpx.Client(base_url=base, headers=headers, timeout=SECONDS)

    def held(self, prefix: str) -> list[Entry]:
        """All boxes and volumes whose tag begins with `prefix`. Raises httpx.HTTPError when that can't be said."""
        found = [*self.boxes(self), *self.volumes(self)]
        return [entry for entry in found if entry.tag.startswith((prefix, prefix.replace("-", "_")))]


def _runpod_pages(books: Books, path: str, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = ""
    with books.client() as client:
        for _ in range(_PAGES):
            answer = client.get(path, params={"cursor": cursor} if cursor else {})
            answer.raise_for_status()
            page = answer.json()
            found += page[name]
            paging = page.get("pagination") or {}
            if not paging.get("hasNextPage"):
                return found
            cursor = paging["nextCursor"]
    raise httpx.HTTPError(f"{path} has no end")


def _runpod_boxes(books: Books) -> list[Entry]:
    pods = _runpod_pages(books, "/v2/pods", "pods")
    return [Entry("box", pod["id"], pod.get("name") or "") for pod in pods if pod.get("status") != "TERMINATED"]


def _runpod_volumes(books: Books) -> list[Entry]:
    volumes = _runpod_pages(books, "/v2/network-volumes", "networkVolumes")
    return [Entry("volume", one["id"], one.get("name") or "") for one in volumes]


def _runpod_end(books: Books, native_id: str) -> None:
    with books.client() as client:
        client.delete(f"/v2/pods/{native_id}").raise_for_status()


def _vast_boxes(books: Books) -> list[Entry]:
    found: list[Entry] = []
    token = ""
    with books.client() as client:
        for _ in range(_PAGES):
            answer = client.get("/api/v1/instances/", params={"after_token": token} if token else {})
            answer.raise_for_status()
            page = answer.json()
            found += [Entry("box", str(one["id"]), one.get("label") or "") for one in page["instances"]]
            token = page.get("next_token") or ""
            if not token:
                return found
    raise httpx.HTTPError("the list of instances has no end")


def _vast_volumes(books: Books) -> list[Entry]:
    with books.client() as client:
        answer = client.get("/api/v0/volumes", params={"owner": "me", "type": "all_volume"})
        answer.raise_for_status()
        return [Entry("volume", str(one["id"]), one.get("label") or "") for one in answer.json()["volumes"]]


def _vast_end(books: Books, native_id: str) -> None:
    with books.client() as client:
        client.request("DELETE", f"/api/v0/instances/{native_id}/", json={}).raise_for_status()


BOOKS = {
    "runpod": Books(
        "runpod",
        "RUNPOD_API_KEY",
        "RUNPOD_API_BASE_URL",
        "https://api.runpod.io",
        "https://console.runpod.io/pods",
        _runpod_boxes,
        _runpod_volumes,
        _runpod_end,
    ),
    "vastai": Books(
        "vastai",
        "VAST_API_KEY",
        "VAST_URL",
        "https://console.vast.ai",
        "https://cloud.vast.ai/instances/",
        _vast_boxes,
        _vast_volumes,
        _vast_end,
    ),
}
