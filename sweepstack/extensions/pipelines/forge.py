"""What the jobs need of GitHub or GitLab: comments, statuses and issues.

Both share pages, lost answers, and the one comment or issue that is kept up to date.
A comment or an issue counts as ours only where this token wrote it: on a public repository a stranger can write one
with the same first line, and would choose what stands there, or keep the real one from being seen.

Sources: docs.github.com/rest, version 2022-11-28; its jobs' variables: docs.github.com/actions/reference/variables.
GitLab's REST API v4: docs.gitlab.com/api (notes, commits, merge_requests, issues); the job's variables:
docs.gitlab.com/ci/variables.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import parse_qsl, quote, urlsplit

from sweepstack.core.paths import docs_page
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import No, OutcomeUnknown, Unsupported, Unsure
from sweepstack.platforms.common.http_client import HttpAnswer, HttpClient
from sweepstack.review.markdown import MOST

State = Literal["success", "failure", "error"]
TOKENS = ("GITHUB_TOKEN", "GITLAB_TOKEN")
"""The environment variables with a forge's token. No command that a job starts inherits them."""


@dataclass(frozen=True)
class ForgeJob:
    """What the forge says of the job that runs. `change`: the number of the pull or merge request; None: none.

    `head`: the commit that gets a status; `before`: the branch's commit before a push, "" where it had none;
    `target`: the branch that the change is for, or that was pushed to; `default`: the repository's main branch;
    `foreign`: the change comes from a fork; `url`: the job's page; `base`: what a merge queue has merged before, ""
    where the job is of no queue.
    """

    change: int | None
    head: str
    before: str
    target: str
    default: str
    foreign: bool
    url: str
    base: str = ""


@dataclass(frozen=True)
class Status:
    """A status of a commit. `text`: its description."""

    state: str
    text: str


@dataclass(frozen=True)
class Comment:
    """A comment of a request. `own`: this job's token wrote it; anyone can write what looks like it."""

    id: int
    text: str
    own: bool


@dataclass(frozen=True)
class Request:
    """A request as the forge has it by now. `own`: its branch is of this repository; `target`: the branch that it is
    for; `decision`: of its reviewers (APPROVED, CHANGES_REQUESTED, REVIEW_REQUIRED), "" where the branch needs none."""

    open: bool
    head: str
    own: bool
    target: str
    decision: str


@dataclass(frozen=True)
class Reviewed:
    """The newest status of a name. `at`: when it was set, as the forge says."""

    status: Status
    at: str


class Forge(Protocol):
    """The calls of one forge. Each request blocks for a minute and a half at most, and raises PlatformError."""

    def comment(self, change: int, marker: str, body: str) -> None:
        """Makes the one comment of this change and this token whose first line is `marker`, or replaces its text.
        Idempotent."""

    def comments(self, change: int) -> list[Comment]:
        """The comments of a change, oldest first. Raises Unsure where they are more than are read."""

    def set_status(self, commit: str, name: str, state: State, text: str, url: str) -> None:
        """Adds a status to a commit: the newest of a name is the one that counts."""

    def status(self, commit: str, name: str) -> Status | None:
        """The newest status of this name; None where there is none."""

    def change_of(self, commit: str) -> tuple[int, str] | None:
        """The change whose merge brought this commit: its number, and the last commit of its own. None: none did."""

    def warnings(self) -> list[str]:
        """What of the project's own settings lets a stranger's code see the secrets of its jobs, and what ends that."""

    def issue(self, marker: str, title: str, body: str, *, open: bool) -> str:
        """Keeps the one open issue of this token whose first line is `marker`: makes it or replaces its text; with
        `open` False replaces the text and closes it, where there is one. Returns its page, "" where there is none."""


def first_line(text: str) -> str:
    """The first line, where a marker is. A forge may have changed the line's end."""
    return text.lstrip("\ufeff").split("\n", 1)[0].strip()


def same(text: str, other: str) -> bool:
    """Whether two texts are the same to a reader: a forge changes the ends of lines and of the text."""
    return "\n".join(text.split("\r\n")).strip() == "\n".join(other.split("\r\n")).strip()


def clipped(text: str, most: int = MOST) -> str:
    """The text, shortened where the forge would refuse it."""
    return text if len(text) <= most else text[: most - 80] + "\n\n(cut here: the job's log has the rest)\n"


def token(name: str) -> str:
    """The forge's token. Raises Unsure where the variable is empty: which one it is, and who sets it."""
    value = os.environ.get(name, "")
    if not value:
        raise Unsure(f"{name} is not set: the step that posts needs it ({docs_page('pipelines.md')})")
    return value


PAGE = 100
MOST_PAGES = 100
"""Of one list. What lies behind them is not known, so it is no answer that something is not there."""
TRIES = 3
"""How often a write is sent that can be repeated: one that sets a text."""
_NEXT = re.compile(r'<([^<>]+)>\s*;[^,<]*\brel="?next"?', re.IGNORECASE)


class RestForge:
    """See `Forge`. A subclass says what differs."""

    EDIT = "PATCH"
    ISSUE_TEXT = "body"
    ISSUE_NUMBER = "number"
    ISSUE_PAGE = "html_url"
    CLOSED: Mapping[str, str] = {"state": "closed"}
    STATES: Mapping[str, str] = {}
    STATUS_NAME = "context"
    STATUS_CHARS = 140

    def __init__(self, http: HttpClient, root: str) -> None:
        """`root`: the start of the repository's paths."""
        self._http, self._root = http, root

    def _own(self, author: Mapping[str, Any]) -> bool:
        """Whether this author is the user of the token. Asks the forge once."""
        raise NotImplementedError

    def _comments_path(self, change: int) -> str:
        raise NotImplementedError

    def _comment_path(self, change: int, comment: int) -> str:
        raise NotImplementedError

    def _listed(self, change: int) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
        """The comments, oldest first, each with its author."""
        raise NotImplementedError

    def _issues(self) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
        """The open issues, oldest first, each with its author."""
        raise NotImplementedError

    def status(self, commit: str, name: str) -> Status | None:
        """See `Forge`."""
        raise NotImplementedError

    def warnings(self) -> list[str]:
        """See `Forge`."""
        return []

    def comments(self, change: int) -> list[Comment]:
        """See `Forge`."""
        return [
            Comment(int(one["id"]), str(one.get("body") or ""), self._own(author))
            for one, author in self._listed(change)
        ]

    def comment(self, change: int, marker: str, body: str) -> None:
        """See `Forge`."""
        text = clipped(body)

        def found() -> Comment | None:
            mine = (one for one in self.comments(change) if one.own and first_line(one.text) == marker)
            return next(mine, None)

        def there() -> bool:
            one = found()
            return one is not None and same(one.text, text)

        present = found()
        path = self._comment_path(change, present.id) if present else ""
        # One that was deleted since it was listed is made anew.
        if not present or self._edited(path, {"body": text}, there) is None:
            self._once(lambda: self._write("POST", self._comments_path(change), {"body": text}), there)

    def set_status(self, commit: str, name: str, state: State, text: str, url: str) -> None:
        """See `Forge`."""
        wanted = Status(self.STATES.get(state, state), text[: self.STATUS_CHARS])
        body = {"state": wanted.state, self.STATUS_NAME: name, "description": wanted.text, "target_url": url}
        self._once(
            lambda: self._write("POST", f"/statuses/{commit}", body), lambda: self.status(commit, name) == wanted
        )

    def issue(self, marker: str, title: str, body: str, *, open: bool) -> str:
        """See `Forge`."""
        text = clipped(body)
        words = {"title": title, self.ISSUE_TEXT: text}

        def found() -> dict[str, Any] | None:
            return next(
                (
                    one
                    for one, author in self._issues()
                    if first_line(str(one.get(self.ISSUE_TEXT) or "")) == marker and self._own(author)
                ),
                None,
            )

        def there() -> bool:
            one = found()
            if one is None:
                return not open
            return open and same(str(one.get(self.ISSUE_TEXT) or ""), text)

        present = found()
        if present is not None:
            change = words if open else {**words, **self.CLOSED}
            if self._edited(f"/issues/{present[self.ISSUE_NUMBER]}", change, there) is not None or not open:
                return str(present.get(self.ISSUE_PAGE) or "")
        if not open:
            return ""
        self._once(lambda: self._write("POST", "/issues", words), there)
        made = found()
        return str(made.get(self.ISSUE_PAGE) or "") if made else ""

    def _once(self, make: Callable[[], object], there: Callable[[], bool]) -> None:
        """Makes one thing. Where the answer is lost, looks whether it is there. Raises OutcomeUnknown: it is not."""
        try:
            make()
        except OutcomeUnknown:
            if not there():
                raise

    def _edited(self, path: str, body: Mapping[str, Any], there: Callable[[], bool]) -> HttpAnswer | None:
        """Sets a text, again where the answer is lost and it is not there. None: the thing itself is gone (404)."""
        for left in reversed(range(TRIES)):
            try:
                answer = self._http.write(self.EDIT, self._root + path, body)
            except OutcomeUnknown:
                if there():
                    return HttpAnswer(200)
                if not left:
                    raise
                continue
            return None if answer.status == 404 else self._judged(answer, f"{self.EDIT} {path}")
        raise AssertionError("a loop that ends by itself")

    def _all(self, path: str, **params: str) -> Iterator[dict[str, Any]]:
        """All rows of a list. Follows the `link` of each answer: a page may be short with more behind it (GitLab leaves
        out what the token may not read). Only its query is taken, so that the token goes nowhere else."""
        asked = {**params, "per_page": str(PAGE)}
        for _ in range(MOST_PAGES):
            answer = self._judged(self._http.read(self._root + path, asked), f"GET {path}")
            if not isinstance(answer.data, list):
                raise Unsure(f"{self._http.service} answered GET {path} with no list")
            yield from (row for row in answer.data if isinstance(row, dict))
            following = _NEXT.search(answer.headers.get("link", ""))
            if following is None:
                return
            asked = dict(parse_qsl(urlsplit(following[1]).query, keep_blank_values=True))
        raise Unsure(f"{self._http.service} has more than {MOST_PAGES * PAGE} rows of {path}: not all were read")

    def _write(self, method: str, path: str, body: Mapping[str, Any]) -> HttpAnswer:
        return self._judged(self._http.write(method, self._root + path, body), f"{method} {path}")

    def _judged(self, answer: HttpAnswer, asked: str) -> HttpAnswer:
        if not answer.ok:
            raise self._http.refusal(answer, asked)
        return answer


GITHUB_URL = "https://api.github.com"
GRAPHQL_URL = "https://api.github.com/graphql"
BRANCH = "refs/heads/"


DECISION = (
    "query($owner:String!,$name:String!,$number:Int!){repository(owner:$owner,name:$name)"
    "{pullRequest(number:$number){reviewDecision}}}"
)


def github_event() -> dict[str, Any]:
    """What started the job. Raises Unsure where it does not read."""
    try:
        event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
        assert isinstance(event, dict)
    except (KeyError, OSError, ValueError, AssertionError) as error:
        raise Unsure(f"the event of this job (GITHUB_EVENT_PATH) does not read: {error}") from error
    return event


def github_job() -> ForgeJob:
    """The job that runs, by its variables and its event. Raises Unsure where the event does not read."""
    event, env = github_event(), os.environ
    repository = env.get("GITHUB_REPOSITORY", "")
    request = event.get("pull_request") or {}
    head = request.get("head") or {}
    queued = event.get("merge_group") or {}
    before = str(event.get("before") or "")
    target = str((request.get("base") or {}).get("ref") or queued.get("base_ref") or env.get("GITHUB_REF_NAME", ""))
    return ForgeJob(
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
        super().__init__(
            _github_client("GITHUB_API_URL", GITHUB_URL), f"/repos/{os.environ.get('GITHUB_REPOSITORY', '')}"
        )
        self._login = ""

    def _own(self, author: Mapping[str, Any]) -> bool:
        return bool(author.get("login")) and author["login"] == self._me()

    def _me(self) -> str:
        """The login of the token's user. REST's `/user` refuses the token of a job, GraphQL answers it: the login of a
        bot, which ends in `[bot]` as no user's can. A question, so it is asked again where its answer is lost."""
        for left in reversed(range(TRIES)) if not self._login else ():
            try:
                asked = {"query": "query { viewer { login } }"}
                answer = self._judged(
                    _github_client("GITHUB_GRAPHQL_URL", GRAPHQL_URL).write("POST", "", asked), "viewer"
                )
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

    # What a comment's command needs: GitLab starts no pipeline for a comment.

    def may_write(self, login: str, user: int) -> bool:
        """Whether this user may write to the repository by now. A name that is another user's by now is a no."""
        found = self._object(f"/collaborators/{quote(login, safe='')}/permission")
        return found is not None and (found["permission"] in ("admin", "write") and found["user"]["id"] == user)

    def written(self, comment: int) -> tuple[str, str] | None:
        """The text of a comment by now, and when it was written; None where it was deleted."""
        found = self._object(self._comment_path(0, comment))
        return None if found is None else (found["body"] or "", found["created_at"])

    def request(self, number: int) -> Request:
        """A request by now, with what its reviewers decided."""
        found = self._object(f"/pulls/{number}")
        if found is None:
            raise Unsure(f"GitHub has no request {number}")
        owner, _, name = os.environ.get("GITHUB_REPOSITORY", "").partition("/")
        asked = {"query": DECISION, "variables": {"owner": owner, "name": name, "number": number}}
        told = self._judged(_github_client("GITHUB_GRAPHQL_URL", GRAPHQL_URL).query("", asked), "reviewDecision")
        try:
            decision = told.data["data"]["repository"]["pullRequest"]["reviewDecision"]
        except (KeyError, TypeError):
            raise Unsure(f"GitHub did not say what reviewers decided of request {number} ({told.text})") from None
        return Request(
            open=found["state"] == "open",
            head=found["head"]["sha"],
            own=(found["head"]["repo"] or {}).get("full_name") == f"{owner}/{name}",  # None: the fork was deleted
            target=found["base"]["ref"],
            decision=decision or "",
        )

    def statuses(self, commit: str) -> dict[str, Reviewed]:
        """The newest status of each name. GitHub lists the newest first."""
        found: dict[str, Reviewed] = {}
        for one in self._all(f"/commits/{commit}/statuses"):
            status = Status(one["state"], one["description"] or "")
            found.setdefault(one["context"], Reviewed(status, one["created_at"]))
        return found

    def again(self, workflow: str, commit: str) -> str | None:
        """Starts the newest run of a workflow for a request with this last commit again, from the same commit, with its
        own rights and secrets. Returns its page, also where it still runs; None where there is no run."""
        asked = {"event": "pull_request", "head_sha": commit, "per_page": "1"}
        found = self._object(f"/actions/workflows/{quote(workflow, safe='')}/runs", asked)
        if found is None or not found["workflow_runs"]:
            return None
        (run,) = found["workflow_runs"]
        if run["status"] == "completed":
            self._write("POST", f"/actions/runs/{run['id']}/rerun", {})
        return str(run["html_url"])

    def _object(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any] | None:
        """One object; None where there is none (404)."""
        answer = self._http.read(self._root + path, params)
        if answer.status == 404:
            return None
        found = self._judged(answer, f"GET {path}").data
        if not isinstance(found, dict):
            raise Unsure(f"GitHub answered GET {path} with no object")
        return found


def _github_client(variable: str, usual: str) -> HttpClient:
    return HttpClient(
        "GitHub",
        os.environ.get(variable) or usual,
        token("GITHUB_TOKEN"),
        key_hint="GITHUB_TOKEN (the job's permissions)",
        headers={"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"},
    )


FORKS = "ci_allow_fork_pipelines_to_run_in_parent_project"
"""docs.gitlab.com/ci/pipelines/merge_request_pipelines (Prevent pipelines from fork projects): on by default, and only
the API of projects sets it."""
GITLAB_URL = "https://gitlab.com/api/v4"


def gitlab_job() -> ForgeJob:
    """The job that runs, by its variables."""
    env = os.environ
    number = env.get("CI_MERGE_REQUEST_IID", "")
    before = env.get("CI_COMMIT_BEFORE_SHA", "")
    source = env.get("CI_MERGE_REQUEST_SOURCE_PROJECT_ID", "")
    return ForgeJob(
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
            os.environ.get("CI_API_V4_URL") or GITLAB_URL,
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


def here() -> tuple[ForgeJob, Callable[[], Forge]]:
    """The job that runs, and what makes its forge's client (which needs the token). Raises Unsure outside of a job."""
    if os.environ.get("GITHUB_ACTIONS"):
        return github_job(), GitHub
    if os.environ.get("GITLAB_CI"):
        return gitlab_job(), GitLab
    raise Unsure("this is no job of GitHub Actions or GitLab CI: `sweepctl review` and `pulumi` are for people")
