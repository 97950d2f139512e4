"""GitLab's REST API v4, as far as the jobs need it.

Source: docs.gitlab.com/api (notes, commits, merge_requests, issues); the job's variables: docs.gitlab.com/ci/variables.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from sweepstack.cli.commands.ci.forge import Job, Status, token
from sweepstack.cli.commands.ci.rest import RestForge
from sweepstack.cli.output import Unsure
from sweepstack.core.paths import docs_page
from sweepstack.platforms.common.http_client import HttpClient

FORKS = "ci_allow_fork_pipelines_to_run_in_parent_project"
"""docs.gitlab.com/ci/pipelines/merge_request_pipelines (Prevent pipelines from fork projects): on by default, and only
the API of projects sets it."""
DEFAULT_URL = "https://gitlab.com/api/v4"


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


class GitLab(RestForge):
    """See `Forge`. Takes the token from GITLAB_TOKEN, and the address from CI_API_V4_URL."""

    EDIT = "PUT"
    ISSUE_TEXT = "description"
    ISSUE_NUMBER = "iid"
    ISSUE_PAGE = "web_url"
    CLOSED: Mapping[str, str] = {"state_event": "close"}
    STATES: Mapping[str, str] = {"success": "success", "failure": "failed", "error": "failed"}
    STATUS_NAME = "name"
    STATUS_CHARS = 255

    def __init__(self) -> None:
        http = HttpClient(
            "GitLab",
            os.environ.get("CI_API_V4_URL") or DEFAULT_URL,
            token("GITLAB_TOKEN"),
            key_hint="GITLAB_TOKEN (a project access token with the scope `api`, whose role may merge to the branch; "
            f"{docs_page('pipelines.md')})",
        )
        super().__init__(http, f"/projects/{os.environ.get('CI_PROJECT_ID', '')}")
        self._id = 0

    def _own(self, author: Mapping[str, Any]) -> bool:
        if not self._id:
            answer = self._judged(self._http.read("/user"), "GET /user")
            try:
                self._id = int(answer.data["id"])
            except (KeyError, TypeError, ValueError):
                raise Unsure("GitLab did not say whose token this is") from None
        return author.get("id") == self._id

    def _comments_path(self, change: int) -> str:
        return f"/merge_requests/{change}/notes"

    def _comment_path(self, change: int, comment: int) -> str:
        return f"/merge_requests/{change}/notes/{comment}"

    def _listed(self, change: int) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
        rows = self._all(self._comments_path(change), sort="asc", order_by="created_at")
        return ((one, one.get("author") or {}) for one in rows if not one.get("system"))

    def _issues(self) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
        rows = self._all("/issues", state="opened", sort="asc", order_by="created_at")
        return ((one, one.get("author") or {}) for one in rows)

    def warnings(self) -> list[str]:
        """See `Forge`."""
        answer = self._judged(self._http.read(self._root), "GET /projects/:id")
        # GitLab tells it to a token of a Maintainer alone: to one of a Developer it is not known, and nothing is said.
        if not isinstance(answer.data, dict) or answer.data.get(FORKS) is not True:
            return []
        return [
            "A member who starts a pipeline for a fork's merge request runs the fork's code with this project's "
            'variables. Switch that off (Maintainer): `curl --request PUT --header "PRIVATE-TOKEN: …" '
            f"--data {FORKS}=false {self._http.base_url}{self._root}`"
        ]

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
