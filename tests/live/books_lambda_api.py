"""Lambda's own books."""

from __future__ import annotations

from typing import Any

from tests.live.books import Books, Entry


def _listed(books: Books, path: str) -> list[dict[str, Any]]:
    """One answer, without pages. A list of instances may leave out those that are terminated, or not."""
    with books.client() as client:
        answer = client.get(path)
        answer.raise_for_status()
        found: list[dict[str, Any]] = answer.json()["data"]
        return found


def _boxes(books: Books) -> list[Entry]:
    living = [one for one in _listed(books, "/instances") if one["status"] != "terminated"]
    return [Entry("box", one["id"], one.get("name") or "") for one in living]


def _volumes(books: Books) -> list[Entry]:
    return [Entry("volume", one["id"], one["name"]) for one in _listed(books, "/file-systems")]


def _end(books: Books, native_id: str) -> None:
    with books.client() as client:
        client.post("/instance-operations/terminate", json={"instance_ids": [native_id]}).raise_for_status()


BOOKS = Books(
    "lambda_api",
    "LAMBDA_API_KEY",
    "LAMBDA_API_BASE_URL",
    "https://cloud.lambda.ai/api/v1",
    "https://cloud.lambda.ai/instances",
    _boxes,
    _volumes,
    _end,
    stops=False,
    most_per_hour=0.80,  # its cheapest type with a card: an A10 for 0.75
)
