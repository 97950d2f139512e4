"""vast.ai's own books."""

from __future__ import annotations

import httpx

from tests.live.books import PAGES, Books, Entry


def _boxes(books: Books) -> list[Entry]:
    found: list[Entry] = []
    token = ""
    with books.client() as client:
        for _ in range(PAGES):
            answer = client.get("/api/v1/instances/", params={"after_token": token} if token else {})
            answer.raise_for_status()
            page = answer.json()
            found += [Entry("box", str(one["id"]), one.get("label") or "") for one in page["instances"]]
            token = page.get("next_token") or ""
            if not token:
                return found
    raise httpx.HTTPError("the list of instances has no end")


def _volumes(books: Books) -> list[Entry]:
    with books.client() as client:
        answer = client.get("/api/v0/volumes", params={"owner": "me", "type": "all_volume"})
        answer.raise_for_status()
        return [Entry("volume", str(one["id"]), one.get("label") or "") for one in answer.json()["volumes"]]


def _end(books: Books, native_id: str) -> None:
    with books.client() as client:
        client.request("DELETE", f"/api/v0/instances/{native_id}/", json={}).raise_for_status()


BOOKS = Books(
    "vastai",
    "VAST_API_KEY",
    "VAST_URL",
    "https://console.vast.ai",
    "https://cloud.vast.ai/instances/",
    _boxes,
    _volumes,
    _end,
)
