"""GitLab's REST API v4, as far as the jobs need it.

Source: docs.gitlab.com/api (notes, commits, merge_requests, issues); the job's variables: docs.gitlab.com/ci/variables.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from sweepstack.cli.commands.ci.forge import Job, State, Status, begins, clipped, once, token
from sweepstack.cli.output import Unsure
from sweepstack.platforms.common.http_client import Answer, HttpClient

DEFAULT_URL = "https://gitlab.com/api/v4"
PAGE = 100
MOST_PAGES = 50
STATUS_CHARS = 255
_STATES = {"success": "success", "failure": "failed", "error": "failed"}


def job() -> Job:
    """The job that runs, by its variables."""
    env = os.environ
    number = env.get("CI_MERGE_REQUEST_IID", "")
    before = env.get("CI_COMMIT_BEFORE_SHA", "")
    source = env.get("CI_MERGE_REQUEST_SOURCE_PROJECT_ID", "")
    return Job(
        change=int(number) if number.isdigit() else None,
        # Set in pipelines of merged results alone, whose CI_COMMIT_SHA is a commit that no branch keeps.
        head=env.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or env.get("CI_COMMIT_SHA", ""),
        before="" if set(before) <= {"0"} else before,
        target=env.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME") or env.get("CI_COMMIT_BRANCH", ""),
        default=env.get("CI_DEFAULT_BRANCH", ""),
        foreign=bool(source) and source != env.get("CI_PROJECT_ID", ""),
        url=env.get("CI_JOB_URL", ""),
    )


class GitLab:
    """See `Forge`. Takes the token from GITLAB_TOKEN, and the address from CI_API_V4_URL."""

    def __init__(self) -> None:
        self._project = f"/projects/{os.environ.get('CI_PROJECT_ID', '')}"
        self._http = HttpClient(
            "GitLab",
            os.environ.get("CI_API_V4_URL") or DEFAULT_URL,
            token("GITLAB_TOKEN"),
            key_hint="GITLAB_TOKEN (a project access token with the scope `api`)",
        )

    def comment(self, change: int, marker: str, body: str) -> None:
        """See `Forge`."""
        text = clipped(body)
        notes = f"/merge_requests/{change}/notes"
        found = [id for id, present in self.comments(change) if begins(present, marker)]
        if found:
            self._write("PUT", f"{notes}/{found[0]}", {"body": text})
        else:
            once(
                lambda: self._write("POST", notes, {"body": text}),
                lambda: any(begins(present, marker) for _, present in self.comments(change)),
            )

    def comments(self, change: int) -> list[tuple[int, str]]:
        """See `Forge`."""
        rows = self._all(f"/merge_requests/{change}/notes", sort="asc", order_by="created_at")
        return [(int(one["id"]), str(one.get("body") or "")) for one in rows if not one.get("system")]

    def set_status(self, commit: str, name: str, state: State, text: str, url: str) -> None:
        """See `Forge`."""
        body = {"state": _STATES[state], "name": name, "description": text[:STATUS_CHARS], "target_url": url}
        self._write("POST", f"/statuses/{commit}", body)

    def status(self, commit: str, name: str) -> Status | None:
        """See `Forge`."""
        rows = [one for one in self._all(f"/repository/commits/{commit}/statuses", name=name) if one["name"] == name]
        if not rows:
            return None
        newest = max(rows, key=lambda one: int(one["id"]))
        return Status(str(newest.get("status")), str(newest.get("description") or ""))

    def change_of(self, commit: str) -> tuple[int, str] | None:
        """See `Forge`."""
        for one in self._all(f"/repository/commits/{commit}/merge_requests"):
            made = (one.get("merge_commit_sha"), one.get("squash_commit_sha"), one.get("sha"))
            if one.get("state") == "merged" and commit in made:
                return int(one["iid"]), str(one["sha"])
        return None

    def issue(self, marker: str, title: str, body: str, *, open: bool) -> str:
        """See `Forge`."""
        text = clipped(body)
        if found := self._issue(marker):
            change = {"title": title, "description": text} | ({} if open else {"state_event": "close"})
            self._write("PUT", f"/issues/{found['iid']}", change)
        elif open:
            once(
                lambda: self._write("POST", "/issues", {"title": title, "description": text}),
                lambda: self._issue(marker) is not None,
            )
            found = self._issue(marker)
        return str(found.get("web_url") or "") if found else ""

    def _issue(self, marker: str) -> dict[str, Any] | None:
        for one in self._all("/issues", state="opened", sort="asc", order_by="created_at"):
            if begins(str(one.get("description") or ""), marker):
                return one
        return None

    def _all(self, path: str, **params: str) -> Iterator[dict[str, Any]]:
        for page in range(1, MOST_PAGES + 1):
            asked = {**params, "per_page": str(PAGE), "page": str(page)}
            rows = self._judged(self._http.read(self._project + path, asked), f"GET {path}").data
            if not isinstance(rows, list):
                raise Unsure(f"GitLab answered GET {path} with no list")
            yield from (row for row in rows if isinstance(row, dict))
            if len(rows) < PAGE:
                return

    def _write(self, method: str, path: str, body: dict[str, Any]) -> None:
        self._judged(self._http.write(method, self._project + path, body), f"{method} {path}")

    def _judged(self, answer: Answer, asked: str) -> Answer:
        if not answer.ok:
            raise self._http.refusal(answer, asked)
        return answer
