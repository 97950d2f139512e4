"""The calls of GitHub's REST API (version 2022-11-28), and the one question of its GraphQL API."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urlencode

from tests.simulators.forges.core import (
    TOKEN,
    Call,
    Forge,
    Refused,
    Route,
    Thing,
    crlf,
    number,
    one_of,
    route,
    text_of,
)

BASE = "/api/v3"
BODY = 65_536
"""danger/danger#424, trstringer/manual-approval#89: 422, «body is too long (maximum is 65536 characters)», for
comments and for issues."""
STATUS_TEXT = 140
STATUSES_OF_ONE = 1000
"""OpenAPI, repos/create-commit-status: so many for each commit and context, then a validation error."""
_ID = "/repositories/1300192"
"""The `link` header names a repository by its id, and no client has that (docs: using-pagination-in-the-rest-api)."""
_DECISION = re.compile(
    r"query\(\$(\w+):String!,\$(\w+):String!,\$(\w+):Int!\)\{repository\(owner:\$\1,name:\$\2\)"
    r"\{pullRequest\(number:\$\3\)\{reviewDecision\}\}\}"
)
_REST: list[Route] = []
_GRAPHQL: list[Route] = []


def tables(forge: Forge) -> list[tuple[str, list[Route]]]:
    """The calls, each with the start of its path."""
    return [(f"{BASE}/repos/{forge.repository}", _REST), (BASE + _ID, _REST), ("/api", _GRAPHQL), (BASE, _GRAPHQL)]


def headers(_: Forge, verb: str, sent: dict[str, str], raw: bytes) -> None:
    """docs: getting-started-with-the-rest-api. No User-Agent is refused; the media type and the version should be
    named, and here they have to be; an unknown version is a 400 (troubleshooting-the-rest-api)."""
    if not sent.get("user-agent"):
        raise Refused(403, "Request forbidden by administrative rules. Please make sure your request has a User-Agent")
    if sent.get("accept") != "application/vnd.github+json":
        raise Refused(415, "Unsupported 'Accept' header")
    if sent.get("x-github-api-version") != "2022-11-28":
        raise Refused(400, "The version of the API is not supported, or not named")
    if raw and sent.get("content-type") != "application/json":
        raise Refused(415, "Must be application/json")
    if verb != "GET" and not raw:
        raise Refused(400, "Body should be a JSON object")


def who(sent: dict[str, str]) -> str:
    """Whose token it is. Raises Refused."""
    if sent.get("authorization") != f"Bearer {TOKEN}":
        raise Refused(401, "Bad credentials")
    return "token"


def allowed(forge: Forge, one: Route, _: str) -> None:
    """A right that the job's permissions lack: 403 «Resource not accessible by integration» (troubleshooting)."""
    forge.need(one.needs, writing=one.verb != "GET" and one.path.pattern != "/graphql")


def always() -> dict[str, str]:
    """docs: rate-limits-for-the-rest-api; a job's token has 1,000 requests an hour for each repository."""
    return {"x-ratelimit-limit": "1000", "x-ratelimit-remaining": "900", "x-ratelimit-resource": "core"}


def refusal(error: Refused) -> dict[str, Any]:
    """An error's body: `errors` where a value was refused."""
    if error.status == 422:
        return {"message": "Validation Failed", "errors": [{"code": "custom", "message": str(error)}], "status": "422"}
    return {"message": str(error), "documentation_url": "https://docs.github.com/rest", "status": str(error.status)}


def _page(rows: list[Any], call: Call) -> list[Any]:
    """docs: using-pagination: 30 rows usually, 100 at most; the `link` header is left out where one page holds all."""
    size, page = number(call, "per_page", 30), number(call, "page", 1)
    if size > 100:
        raise Refused(422, "per_page is at most 100")
    if page * size < len(rows):
        path = call.path.split("/repos/", 1)[-1].split("/", 2)[-1] if "/repos/" in call.path else ""
        path = f"{BASE}{_ID}/{path}" if path else call.path
        query = urlencode({**call.query, "page": str(page + 1)})
        call.headers["link"] = f'<https://api.example.invalid{path}?{query}>; rel="next"'
    return rows[(page - 1) * size : page * size]


def _user(login: str) -> dict[str, Any]:
    """OpenAPI: simple-user. A bot's login ends in [bot], which no user's can."""
    return {"login": login, "id": user_id(login), "type": "Bot" if login.endswith("[bot]") else "User"}


def user_id(login: str) -> int:
    """The number of a user. A login can be given up, and taken by another user."""
    return sum(login.encode())


@route(_REST, r"GET /collaborators/([^/]+)/permission")
def _permission(forge: Forge, call: Call) -> tuple[int, Any]:
    """OpenAPI: repos/get-collaborator-permission-level. `permission` has four values: maintain is write, triage is
    read; of a public repository each user may read. No such user: 404. Needs metadata, which each token has."""
    login = unquote(call.at[0])
    if login not in forge.people:
        raise Refused(404, f"{login} is not a user")
    permission = {"maintain": "write", "triage": "read"}.get(forge.people[login], forge.people[login])
    return 200, {"permission": permission, "role_name": forge.people[login], "user": _user(login)}


_COMMENTS = "pull-requests issues"


def _comment(one: Thing) -> dict[str, Any]:
    """OpenAPI: issue-comment."""
    app = {"slug": one.author.removesuffix("[bot]")} if one.author.endswith("[bot]") else None
    association = "NONE" if app is None else "CONTRIBUTOR"
    return {
        "id": one.id,
        "body": crlf(one.body),
        "user": _user(one.author),
        "author_association": association,
        "performed_via_github_app": app,
        "created_at": one.at,
    }


@route(_REST, r"GET /issues/comments/(\d+)", needs=_COMMENTS)
def _one_comment(forge: Forge, call: Call) -> tuple[int, Any]:
    for one in forge.comments:
        if one.id == int(call.at[0]):
            return 200, _comment(one)
    raise Refused(404, "Not Found")


@route(_REST, r"GET /pulls/(\d+)", needs="pull-requests")
def _pull(forge: Forge, call: Call) -> tuple[int, Any]:
    """OpenAPI: pull-request. A merged one is closed, too; `head.repo` is null where the fork was deleted."""
    one = forge.requests.get(int(call.at[0]))
    if one is None:
        raise Refused(404, "Not Found")
    head = {"ref": "a-branch", "sha": one.head, "repo": {"full_name": one.repository} if one.repository else None}
    base = {"ref": one.target, "repo": {"full_name": forge.repository}}
    state = "open" if one.state == "open" else "closed"
    return 200, {"number": one.number, "state": state, "merged": bool(one.merged), "head": head, "base": base}


@route(_REST, r"GET /actions/workflows/([^/]+)/runs", query="event head_sha status per_page page", needs="actions")
def _runs(forge: Forge, call: Call) -> tuple[int, Any]:
    """OpenAPI: actions/list-workflow-runs. The newest first; `head_sha` of a request's run is the request's commit."""
    rows = [one for one in reversed(forge.runs) if one.name == call.at[0] and call.query.get("head_sha") == one.commit]
    if not any(one.name == call.at[0] for one in forge.runs):
        raise Refused(404, "Not Found")
    shown = [{"id": one.id, "status": one.state, "html_url": f"https://forge.invalid/runs/{one.id}"} for one in rows]
    return 200, {"total_count": len(rows), "workflow_runs": _page(shown, call)}


@route(_REST, r"POST /actions/runs/(\d+)/rerun", body="enable_debug_logging", needs="actions")
def _rerun(forge: Forge, call: Call) -> tuple[int, Any]:
    """docs: re-running-workflows-and-jobs: up to 30 days after, by the commit, rights and secrets of the first time."""
    (run,) = (one for one in forge.runs if one.id == int(call.at[0]))
    if run.state != "completed":
        raise Refused(403, "This workflow is already running")
    run.edits, run.state = run.edits + 1, "queued"
    return 201, {}


@route(_REST, r"GET /issues/(\d+)/comments", query="since per_page page", needs=_COMMENTS)
def _comments(forge: Forge, call: Call) -> tuple[int, Any]:
    """Ordered by ascending id."""
    _there(forge, int(call.at[0]))
    return 200, _page([_comment(one) for one in forge.comments if one.of == int(call.at[0])], call)


@route(_REST, r"POST /issues/(\d+)/comments", body="body", needs=_COMMENTS)
def _add_comment(forge: Forge, call: Call) -> tuple[int, Any]:
    _there(forge, int(call.at[0]))
    text = text_of(call, "body", BODY, status=422)
    made = Thing(forge.next_id(), body=text, of=int(call.at[0]), author=forge.me)
    forge.comments.append(made)
    return 201, _comment(made)


@route(_REST, r"PATCH /issues/comments/(\d+)", body="body", needs=_COMMENTS)
def _edit_comment(forge: Forge, call: Call) -> tuple[int, Any]:
    """A token that may write may edit what others wrote: nothing here keeps a client from a stranger's comment."""
    text = text_of(call, "body", BODY, status=422)
    for one in forge.comments:
        if one.id == int(call.at[0]):
            one.body, one.edits = text, one.edits + 1
            return 200, _comment(one)
    raise Refused(404, "Not Found")


def _there(forge: Forge, wanted: int) -> None:
    if wanted not in forge.requests and wanted not in {one.number for one in forge.issues}:
        raise Refused(404, "Not Found")


def _status(one: Thing) -> dict[str, Any]:
    """OpenAPI: status."""
    return {
        "id": one.id,
        "state": one.state,
        "description": one.body,
        "context": one.name,
        "creator": _user(one.author),
        "created_at": one.at,
    }


@route(_REST, r"POST /statuses/(\w+)", body="state target_url description context", needs="statuses")
def _add_status(forge: Forge, call: Call) -> tuple[int, Any]:
    sha = call.at[0]
    if sha not in forge.commits:
        raise Refused(422, f"No commit found for SHA: {sha}")
    text_of(call, "state", 20, status=422)
    one_of(call, "state", "error failure pending success", 422)
    text = text_of(call, "description", STATUS_TEXT, status=422, may_lack=True)
    if (url := call.body.get("target_url") or "") and not url.startswith(("http://", "https://")):
        raise Refused(422, "target_url must use http(s) scheme")
    name = text_of(call, "context", 255, status=422, may_lack=True) or "default"
    if sum((one.commit, one.name.lower()) == (sha, name.lower()) for one in forge.statuses) >= STATUSES_OF_ONE:
        raise Refused(422, "This SHA and context has reached the maximum number of statuses.")
    made = Thing(forge.next_id(), state=call.body["state"], body=text, name=name, commit=sha, author=forge.me)
    forge.statuses.append(made)
    return 201, _status(made)


@route(_REST, r"GET /commits/(\w+)/statuses", query="per_page page", needs="statuses")
def _statuses(forge: Forge, call: Call) -> tuple[int, Any]:
    """In reverse chronological order."""
    return 200, _page([_status(one) for one in reversed(forge.statuses) if one.commit == call.at[0]], call)


@route(_REST, r"GET /commits/(\w+)/pulls", query="per_page page", needs="pull-requests")
def _pulls(forge: Forge, call: Call) -> tuple[int, Any]:
    """Merged ones and, where the commit is not in the default branch, open ones that have it."""
    if call.at[0] not in forge.commits:
        raise Refused(422, f"No commit found for SHA: {call.at[0]}")
    rows = [
        {
            "number": one.number,
            "state": "closed" if one.merged else "open",
            "merged_at": "2026-11-23T20:00:00Z" if one.merged else None,
            # Of an open request it is a test merge, which no branch has (OpenAPI: pulls/get).
            "merge_commit_sha": one.merged or "f" * 40,
            "head": {"sha": one.head},
        }
        for one in forge.requests.values()
        if call.at[0] in (one.head, one.merged)
    ]
    return 200, _page(rows, call)


def _issue(one: Thing, *, request: bool = False) -> dict[str, Any]:
    """OpenAPI: issue. Each request is an issue too, with the key `pull_request`."""
    shown = {"number": one.number, "title": one.title, "body": crlf(one.body) or None, "state": one.state}
    shown |= {"html_url": f"https://example.invalid/issues/{one.number}", "user": _user(one.author)}
    return {**shown, "pull_request": {}} if request else shown


@route(
    _REST,
    r"GET /issues",
    query="milestone state assignee type creator mentioned labels sort direction since per_page page",
    needs="issues",
)
def _issues(forge: Forge, call: Call) -> tuple[int, Any]:
    """Open ones, the newest first, where nothing else is asked."""
    one_of(call, "state", "open closed all", 422)
    one_of(call, "sort", "created updated comments", 422)
    one_of(call, "direction", "asc desc", 422)
    state = call.query.get("state", "open")
    rows = [_issue(one) for one in forge.issues if state in ("all", one.state)]
    rows += [_issue(one, request=True) for one in forge.requests.values() if state in ("all", one.state)]
    rows.sort(key=lambda one: one["number"], reverse=call.query.get("direction", "desc") == "desc")
    return 200, _page(rows, call)


def _on(forge: Forge) -> None:
    if forge.issues_off:  # OpenAPI: issues/create
        raise Refused(410, "Issues has been disabled in this repository.")


@route(_REST, r"POST /issues", body="title body assignee milestone labels assignees type", needs="issues")
def _add_issue(forge: Forge, call: Call) -> tuple[int, Any]:
    _on(forge)
    text, title = text_of(call, "body", BODY, status=422), text_of(call, "title", 256, status=422)
    count = 1 + max([0, *forge.requests, *(one.number for one in forge.issues)])
    made = Thing(forge.next_id(), number=count, title=title, body=text, state="open", author=forge.me)
    forge.issues.append(made)
    return 201, _issue(made)


@route(
    _REST,
    r"PATCH /issues/(\d+)",
    body="title body assignee state state_reason milestone labels assignees type",
    needs="issues",
)
def _edit_issue(forge: Forge, call: Call) -> tuple[int, Any]:
    _on(forge)
    one_of(call, "state", "open closed", 422)
    text_of(call, "body", BODY, status=422, may_lack=True)
    for one in forge.issues:
        if one.number == int(call.at[0]):
            one.title, one.body = call.body.get("title", one.title), call.body.get("body", one.body)
            one.state, one.edits = call.body.get("state", one.state), one.edits + 1
            return 200, _issue(one)
    raise Refused(404, "Not Found")


@route(_GRAPHQL, r"POST /graphql", body="query variables operationName")
def _viewer(forge: Forge, call: Call) -> tuple[int, Any]:
    """Whose token it is: for a job's own token REST says 403 (anthropics/claude-code-action#538), and GraphQL says the
    bot's login (marocchino/sticky-pull-request-comment#332). A refused question is a 200 with `errors`."""
    if not call.path.startswith("/api/graphql"):
        raise Refused(404, "Not Found")
    asked = "".join(call.body.get("query", "").split())
    if found := _DECISION.fullmatch(asked):
        names = call.body.get("variables") or {}
        if f"{names.get(found[1])}/{names.get(found[2])}" != forge.repository:
            return 200, {"data": {"repository": None}, "errors": [{"type": "NOT_FOUND", "message": "no repository"}]}
        forge.need(frozenset({"pull-requests"}), writing=False)
        one = forge.requests[names[found[3]]]
        return 200, {"data": {"repository": {"pullRequest": {"reviewDecision": one.decision}}}}
    if asked not in ("query{viewer{login}}", "{viewer{login}}"):
        return 200, {"errors": [{"type": "undefinedField", "message": "a question that this simulator does not know"}]}
    return 200, {"data": {"viewer": {"login": forge.me}}}


@route(_GRAPHQL, r"GET /user")
def _me(_: Forge, __: Call) -> tuple[int, Any]:
    raise Refused(403, "Resource not accessible by integration")
