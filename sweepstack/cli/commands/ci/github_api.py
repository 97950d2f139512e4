"""GitHub's REST API, as far as the jobs need it.

Source: docs.github.com/rest, version 2022-11-28; the job's variables: docs.github.com/actions/reference/variables.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sweepstack.cli.commands.ci.forge import Job, Status, token
from sweepstack.cli.commands.ci.rest import TRIES, RestForge
from sweepstack.cli.output import No, Unsure
from sweepstack.onbox.common.errors import OutcomeUnknown, Unsupported
from sweepstack.platforms.common.http_client import HttpClient

DEFAULT_URL = "https://api.github.com"
GRAPHQL_URL = "https://api.github.com/graphql"
BRANCH = "refs/heads/"


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
    queued = event.get("merge_group") or {}
    before = str(event.get("before") or "")
    target = str((request.get("base") or {}).get("ref") or queued.get("base_ref") or env.get("GITHUB_REF_NAME", ""))
    return Job(
        change=request.get("number"),
        head=str(head.get("sha") or queued.get("head_sha") or env.get("GITHUB_SHA", "")),
        before="" if set(before) <= {"0"} else before,
        target=target.removeprefix(BRANCH),
        default=str((event.get("repository") or {}).get("default_branch") or ""),
        foreign=bool(request) and (head.get("repo") or {}).get("full_name") != repository,
        url=f"{env.get('GITHUB_SERVER_URL', '')}/{repository}/actions/runs/{env.get('GITHUB_RUN_ID', '')}",
        base=str(queued.get("base_sha") or ""),
    )


class GitHub(RestForge):
    """See `Forge`. Takes the token from GITHUB_TOKEN, and the addresses from GITHUB_API_URL and GITHUB_GRAPHQL_URL."""

    def __init__(self) -> None:
        super().__init__(_client("GITHUB_API_URL", DEFAULT_URL), f"/repos/{os.environ.get('GITHUB_REPOSITORY', '')}")
        self._login = ""

    def _own(self, author: Mapping[str, Any]) -> bool:
        return bool(author.get("login")) and author["login"] == self._me()

    def _me(self) -> str:
        """The login of the token's user. REST's `/user` refuses the token of a job, GraphQL answers it: the login of a
        bot, which ends in `[bot]` as no user's can. A question, so it is asked again where its answer is lost."""
        for left in reversed(range(TRIES)) if not self._login else ():
            try:
                asked = {"query": "query { viewer { login } }"}
                answer = self._judged(_client("GITHUB_GRAPHQL_URL", GRAPHQL_URL).write("POST", "", asked), "viewer")
            except OutcomeUnknown as error:
                if not left:
                    raise Unsure(f"GitHub did not say whose token this is: {error}") from error
                continue
            try:
                self._login = str(answer.data["data"]["viewer"]["login"])
            except (KeyError, TypeError):
                raise Unsure(f"GitHub did not say whose token this is ({answer.text or 'no login'})") from None
            break
        return self._login

    def _comments_path(self, change: int) -> str:
        return f"/issues/{change}/comments"

    def _comment_path(self, change: int, comment: int) -> str:
        return f"/issues/comments/{comment}"

    def _listed(self, change: int) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
        return ((one, one.get("user") or {}) for one in self._all(self._comments_path(change)))

    def _issues(self) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
        rows = self._all("/issues", state="open", sort="created", direction="asc")
        return ((one, one.get("user") or {}) for one in rows if "pull_request" not in one)

    def issue(self, marker: str, title: str, body: str, *, open: bool) -> str:
        """See `Forge`."""
        try:
            return super().issue(marker, title, body, open=open)
        except Unsupported as error:  # 410
            raise No(f"this repository has no issues: Settings, General, Features, Issues ({error})") from error

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


def _client(variable: str, usual: str) -> HttpClient:
    return HttpClient(
        "GitHub",
        os.environ.get(variable) or usual,
        token("GITHUB_TOKEN"),
        key_hint="GITHUB_TOKEN (the job's permissions)",
        headers={"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"},
    )
