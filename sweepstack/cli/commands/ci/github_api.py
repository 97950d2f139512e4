"""GitHub's REST API, as far as the jobs need it.

Source: docs.github.com/rest, version 2022-11-28; the job's variables: docs.github.com/actions/reference/variables.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweepstack.cli.commands.ci.forge import Job, State, Status, begins, clipped, once, token
from sweepstack.cli.output import Unsure
from sweepstack.platforms.common.http_client import Answer, HttpClient

DEFAULT_URL = "https://api.github.com"
PAGE = 100
MOST_PAGES = 50
STATUS_CHARS = 140
"""GitHub refuses a longer description."""


def job() -> Job:
    """The job that runs, by its variables and its event. Raises Unsure where the event does not read."""
    try:
        event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
        assert isinstance(event, dict)
    except (KeyError, OSError, ValueError, AssertionError) as error:
        raise Unsure(f"the event of this job (GITHUB_EVENT_PATH) does not read: {error}") from error
    env = os.environ
    repository = env.get("GITHUB_REPOSITORY", "")
    request = event.get("pull_request") or {}
    head = request.get("head") or {}
    before = str(event.get("before") or "")
    return Job(
        change=request.get("number"),
        head=str(head.get("sha") or env.get("GITHUB_SHA", "")),
        before="" if set(before) <= {"0"} else before,
        target=str((request.get("base") or {}).get("ref") or env.get("GITHUB_REF_NAME", "")),
        default=str((event.get("repository") or {}).get("default_branch") or ""),
        foreign=bool(request) and (head.get("repo") or {}).get("full_name") != repository,
        url=f"{env.get('GITHUB_SERVER_URL', '')}/{repository}/actions/runs/{env.get('GITHUB_RUN_ID', '')}",
    )


class GitHub:
    """See `Forge`. Takes the token from GITHUB_TOKEN, and the address from GITHUB_API_URL."""

    def __init__(self) -> None:
        self._repository = f"/repos/{os.environ.get('GITHUB_REPOSITORY', '')}"
        self._http = HttpClient(
            "GitHub",
            os.environ.get("GITHUB_API_URL") or DEFAULT_URL,
            token("GITHUB_TOKEN"),
            key_hint="GITHUB_TOKEN (the job's permissions)",
            headers={"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"},
        )

    def comment(self, change: int, marker: str, body: str) -> None:
        """See `Forge`."""
        text = clipped(body)
        found = [id for id, present in self.comments(change) if begins(present, marker)]
        if found:
            self._write("PATCH", f"/issues/comments/{found[0]}", {"body": text})
        else:
            once(
                lambda: self._write("POST", f"/issues/{change}/comments", {"body": text}),
                lambda: any(begins(present, marker) for _, present in self.comments(change)),
            )

    def comments(self, change: int) -> list[tuple[int, str]]:
        """See `Forge`."""
        return [(int(one["id"]), str(one.get("body") or "")) for one in self._all(f"/issues/{change}/comments")]

    def set_status(self, commit: str, name: str, state: State, text: str, url: str) -> None:
        """See `Forge`."""
        body = {"state": state, "context": name, "description": text[:STATUS_CHARS], "target_url": url}
        self._write("POST", f"/statuses/{commit}", body)

    def status(self, commit: str, name: str) -> Status | None:
        """See `Forge`. GitHub lists the newest first."""
        for one in self._all(f"/commits/{commit}/statuses"):
            if one.get("context") == name:
                return Status(str(one.get("state")), str(one.get("description") or ""))
        return None

    def change_of(self, commit: str) -> tuple[int, str] | None:
        """See `Forge`."""
        for one in self._all(f"/commits/{commit}/pulls"):
            if one.get("merged_at") and one.get("merge_commit_sha") == commit:
                return int(one["number"]), str(one["head"]["sha"])
        return None

    def issue(self, marker: str, title: str, body: str, *, open: bool) -> str:
        """See `Forge`."""
        text = clipped(body)
        if found := self._issue(marker):
            change = {"title": title, "body": text} | ({} if open else {"state": "closed"})
            self._write("PATCH", f"/issues/{found['number']}", change)
        elif open:
            once(
                lambda: self._write("POST", "/issues", {"title": title, "body": text}),
                lambda: self._issue(marker) is not None,
            )
            found = self._issue(marker)
        return str(found.get("html_url") or "") if found else ""

    def _issue(self, marker: str) -> dict[str, Any] | None:
        for one in self._all("/issues", state="open", sort="created", direction="asc"):
            if "pull_request" not in one and begins(str(one.get("body") or ""), marker):
                return one
        return None

    def _all(self, path: str, **params: str) -> Iterator[dict[str, Any]]:
        for page in range(1, MOST_PAGES + 1):
            asked = {**params, "per_page": str(PAGE), "page": str(page)}
            rows = self._judged(self._http.read(self._repository + path, asked), f"GET {path}").data
            if not isinstance(rows, list):
                raise Unsure(f"GitHub answered GET {path} with no list")
            yield from (row for row in rows if isinstance(row, dict))
            if len(rows) < PAGE:
                return

    def _write(self, method: str, path: str, body: dict[str, Any]) -> None:
        self._judged(self._http.write(method, self._repository + path, body), f"{method} {path}")

    def _judged(self, answer: Answer, asked: str) -> Answer:
        if not answer.ok:
            raise self._http.refusal(answer, asked)
        return answer
