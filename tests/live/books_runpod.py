"""RunPod's own books."""

from __future__ import annotations

from typing import Any

import httpx

from tests.live.books import PAGES, Books, Entry


def _pages(books: Books, path: str, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = ""
    with books.client() as client:
        for _ in range(PAGES):
            answer = client.get(path, params={"cursor": cursor} if cursor else {})
            answer.raise_for_status()
            page = answer.json()
            found += page[name]
            paging = page.get("pagination") or {}
            if not paging.get("hasNextPage"):
                return found
            cursor = paging["nextCursor"]
    raise httpx.HTTPError(f"{path} has no end")


def _boxes(books: Books) -> list[Entry]:
    pods = _pages(books, "/v2/pods", "pods")
    return [Entry("box", pod["id"], pod.get("name") or "") for pod in pods if pod.get("status") != "TERMINATED"]


def _volumes(books: Books) -> list[Entry]:
    volumes = _pages(books, "/v2/network-volumes", "networkVolumes")
    return [Entry("volume", one["id"], one.get("name") or "") for one in volumes]


def _end(books: Books, native_id: str) -> None:
    with books.client() as client:
        client.delete(f"/v2/pods/{native_id}").raise_for_status()


BOOKS = Books(
    "runpod",
    "RUNPOD_API_KEY",
    "RUNPOD_API_BASE_URL",
    "https://api.runpod.io",
    "https://console.runpod.io/pods",
    _boxes,
    _volumes,
    _end,
)
