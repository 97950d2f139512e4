"""The calls of GitLab's REST API, v4."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

from tests.simulators.forges.core import (
    JOB_TOKEN,
    ME,
    MY_ID,
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

BASE = "/api/v4"
PROJECT = "1217"
BODY = 1_000_000
"""doc/api/notes: limited to 1,000,000 characters."""
DESCRIPTION = 1_048_576
_PROJECT: list[Route] = []
_WHOLE: list[Route] = []
_CODE = re.compile(r"^```.+?\n```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^/([a-z_]+)(?: [^\n]*)?\n?", re.MULTILINE | re.IGNORECASE)


def tables(_: Forge) -> list[tuple[str, list[Route]]]:
    """The calls, each with the start of its path. Another project, or one that the token may not see, is a 404."""
    return [(f"{BASE}/projects/{PROJECT}", _PROJECT), (BASE, _WHOLE)]


def headers(_: Forge, verb: str, sent: dict[str, str], raw: bytes) -> None:
    """doc/api/rest/_index: a payload is JSON with its content type."""
    if raw and sent.get("content-type") != "application/json":
        raise Refused(415, "The provided content-type is not supported.")


def who(sent: dict[str, str]) -> str:
    """doc/api/rest/authentication: an access token as PRIVATE-TOKEN or Bearer; a job's token as JOB-TOKEN alone."""
    if sent.get("job-token") == JOB_TOKEN:
        return "job"
    if TOKEN in (sent.get("private-token"), sent.get("authorization", "").removeprefix("Bearer ")):
        return "token"
    raise Refused(401, "401 Unauthorized")


def allowed(forge: Forge, one: Route, who: str) -> None:
    """A job's token reads the notes, and can't write any (lib/api/helpers/notes_helpers.rb: «Job tokens only support
    read operations»; doc/ci/jobs/ci_job_token has the list). A scope that only reads: 403 insufficient_scope."""
    if who == "job" and not one.job_token:
        raise Refused(401, "401 Unauthorized")
    if forge.scope != "api" and one.verb != "GET":
        words = "The request requires higher privileges than provided by the access token."
        raise Refused(403, "", body={"error": "insufficient_scope", "error_description": words, "scope": "api"})
    forge.need(one.needs, writing=one.verb != "GET")


def always() -> dict[str, str]:
    """What each answer has."""
    return {"x-request-id": "732ad4ee-9870-4866-a199-a9db0cde3c86"}


def refusal(error: Refused) -> dict[str, Any]:
    """doc/api/rest/troubleshooting: `error` where a parameter is wrong, else `message`, which may be an object."""
    if error.status == 400:
        return {"error": str(error)}
    if error.status == 422:
        return {"message": {"base": [str(error)]}}
    return {"message": str(error)}


def _page(rows: list[Any], call: Call) -> list[Any]:
    """doc/api/rest/_index: 20 rows usually, 100 at most; `link` and `x-next-page` say whether there is more. Totals
    are left out, as for long lists on GitLab.com."""
    size, page = number(call, "per_page", 20), number(call, "page", 1)
    if size > 100:
        raise Refused(400, "per_page does not have a valid value")
    more = page * size < len(rows)
    call.headers |= {"x-page": str(page), "x-per-page": str(size), "x-next-page": str(page + 1) if more else ""}
    query = urlencode({**call.query, "page": str(page + 1)})
    links = [f'<https://gitlab.example.invalid{call.path}?page=1>; rel="first"']
    links += [f'<https://gitlab.example.invalid{call.path}?{query}>; rel="next"'] if more else []
    call.headers["link"] = ", ".join(reversed(links))
    return rows[(page - 1) * size : page * size]


def _user(name: str) -> dict[str, Any]:
    """A token of a project is a user of its own, `project_1217_bot_…`; a name is unique, and a user may change it."""
    return {"id": MY_ID if name == ME else 1000 + sum(name.encode()), "username": name, "state": "active"}


@route(_PROJECT, "GET ")
def _project(forge: Forge, _: Call) -> tuple[int, Any]:
    """lib/api/entities/project.rb: the settings of CI/CD are exposed to those who may `admin_project` (Maintainers)."""
    known = (
        {}
        if forge.forks_run_here is None
        else {"ci_allow_fork_pipelines_to_run_in_parent_project": forge.forks_run_here}
    )
    return 200, {"id": int(PROJECT), **known}


@route(_WHOLE, "GET /user")
def _me(forge: Forge, _: Call) -> tuple[int, Any]:
    """doc/api/users: the user of the token. A job's token gets a 401."""
    return 200, _user(forge.me)


def _saved(forge: Forge, text: str) -> str:
    """A line that begins with a quick action outside of a code block is carried out in the token's name, and cut out
    (lib/gitlab/quick_actions/extractor.rb)."""
    kept = [found.span() for found in _CODE.finditer(text)]

    def cut(found: re.Match[str]) -> str:
        if any(start <= found.start() < end for start, end in kept):
            return found[0]
        forge.commands.append(found[0].strip())
        return ""

    return _COMMAND.sub(cut, text).rstrip() + "\n"


def _note(one: Thing) -> dict[str, Any]:
    """doc/api/notes."""
    shown = {"id": one.id, "body": crlf(one.body), "system": one.system, "author": _user(one.author)}
    return {**shown, "internal": False, "noteable_type": "MergeRequest", "created_at": "2026-11-23T20:00:00Z"}


def _request(forge: Forge, iid: str) -> None:
    if int(iid) not in forge.requests:
        raise Refused(404, "404 Not found")


@route(
    _PROJECT,
    r"GET /merge_requests/(\d+)/notes",
    query="sort order_by activity_filter per_page page",
    job_token=True,
)
def _notes(forge: Forge, call: Call) -> tuple[int, Any]:
    """The newest first, where nothing else is asked; notes of the system are among them."""
    _request(forge, call.at[0])
    one_of(call, "sort", "asc desc", 400)
    one_of(call, "order_by", "created_at updated_at", 400)
    rows = [Thing(1, body="changed the description", of=int(call.at[0]), system=True)]
    rows += [one for one in forge.comments if one.of == int(call.at[0])]
    if call.query.get("sort", "desc") == "desc":
        rows.reverse()
    return 200, [_note(one) for one in _page(rows, call) if not one.hidden]


@route(
    _PROJECT,
    r"POST /merge_requests/(\d+)/notes",
    body="body internal confidential created_at merge_request_diff_head_sha",
)
def _add_note(forge: Forge, call: Call) -> tuple[int, Any]:
    _request(forge, call.at[0])
    text = _saved(forge, text_of(call, "body", BODY, status=400))
    if not text.strip():  # lib/api/helpers/notes_helpers.rb: commands alone leave no note
        return 202, {"commands_changes": {}, "summary": []}
    made = Thing(forge.next_id(), body=text, of=int(call.at[0]), author=forge.me)
    forge.comments.append(made)
    return 201, _note(made)


@route(_PROJECT, r"PUT /merge_requests/(\d+)/notes/(\d+)", body="body confidential")
def _edit_note(forge: Forge, call: Call) -> tuple[int, Any]:
    """`authorize! :admin_note`: a Developer edits its own only."""
    text = text_of(call, "body", BODY, status=400)
    for one in forge.comments:
        if one.id == int(call.at[1]) and one.of == int(call.at[0]) and not one.system:
            if one.author != forge.me:
                raise Refused(403, "403 Forbidden")
            one.body, one.edits = _saved(forge, text), one.edits + 1
            return 200, _note(one)
    raise Refused(404, "404 Not found")


def _status(one: Thing) -> dict[str, Any]:
    """doc/api/commits."""
    shown = {"id": one.id, "status": one.state, "description": one.body, "name": one.name, "sha": one.commit}
    return {**shown, "author": _user(one.author)}


@route(
    _PROJECT,
    r"POST /statuses/(\w+)",
    body="state ref target_url description name context coverage pipeline_id",
)
def _add_status(forge: Forge, call: Call) -> tuple[int, Any]:
    """app/services/ci/create_commit_status_service.rb. On a protected branch the token's role has to be one that may
    push or merge to it (app/policies/ci/pipeline_policy.rb): 403 else."""
    sha = call.at[0]
    if sha not in forge.commits:
        raise Refused(404, "404 Commit Not Found")
    text_of(call, "state", 20, status=400)
    one_of(call, "state", "pending running success failed canceled skipped", 400)
    if sha in forge.protected:
        raise Refused(403, "403 Forbidden")
    text = text_of(call, "description", 255, status=400, may_lack=True)
    name = call.body.get("name") or call.body.get("context") or "default"
    made = Thing(forge.next_id(), state=call.body["state"], body=text, name=name, commit=sha, author=forge.me)
    forge.statuses.append(made)
    return 201, _status(made)


@route(
    _PROJECT,
    r"GET /repository/commits/(\w+)/statuses",
    query="ref stage name pipeline_id order_by sort all per_page page",
)
def _statuses(forge: Forge, call: Call) -> tuple[int, Any]:
    """Of each name the newest of each pipeline; here in no order that a client could lean on."""
    if call.at[0] not in forge.commits:
        raise Refused(404, "404 Commit Not Found")
    rows = [one for one in forge.statuses if one.commit == call.at[0] and call.query.get("name") in (None, one.name)]
    rows.sort(key=lambda one: one.id * 7919 % 101)
    return 200, [_status(one) for one in _page(rows, call)]


@route(_PROJECT, r"GET /repository/commits/(\w+)/merge_requests", query="state per_page page", job_token=True)
def _merge_requests(forge: Forge, call: Call) -> tuple[int, Any]:
    if call.at[0] not in forge.commits:
        raise Refused(404, "404 Commit Not Found")
    rows = [
        {
            "iid": one.number,
            "state": "merged" if one.merged else "opened",
            "sha": one.head,
            "merge_commit_sha": one.merged or None,
            "squash_commit_sha": None,
        }
        for one in forge.requests.values()
        if call.at[0] in (one.head, one.merged)
    ]
    return 200, _page(rows, call)


def _issue(one: Thing) -> dict[str, Any]:
    """doc/api/issues."""
    shown = {"iid": one.number, "id": one.id, "title": one.title, "description": crlf(one.body) or None}
    shown |= {"state": "opened" if one.state == "open" else "closed", "web_url": f"https://x/{one.number}"}
    return {**shown, "author": _user(one.author)}


@route(
    _PROJECT,
    r"GET /issues",
    query="state labels milestone scope author_id order_by sort search iids per_page page",
)
def _issues(forge: Forge, call: Call) -> tuple[int, Any]:
    """lib/api/issues.rb: all states, the newest first, where nothing else is asked."""
    one_of(call, "state", "opened closed all", 400)
    one_of(call, "sort", "asc desc", 400)
    wanted = call.query.get("state", "all")
    rows = [shown for shown in map(_issue, forge.issues) if wanted in ("all", shown["state"])]
    if call.query.get("sort", "desc") == "desc":
        rows.reverse()
    return 200, _page(rows, call)


@route(_PROJECT, r"POST /issues", body="title description confidential labels assignee_ids issue_type", needs="issues")
def _add_issue(forge: Forge, call: Call) -> tuple[int, Any]:
    if forge.issues_off:
        raise Refused(403, "403 Forbidden")
    title = text_of(call, "title", 255, status=400)
    text = _saved(forge, text_of(call, "description", DESCRIPTION, status=400, may_lack=True))
    made = Thing(forge.next_id(), number=len(forge.issues) + 1, title=title, body=text, state="open", author=forge.me)
    forge.issues.append(made)
    return 201, _issue(made)


@route(_PROJECT, r"PUT /issues/(\d+)", body="title description state_event confidential labels", needs="issues")
def _edit_issue(forge: Forge, call: Call) -> tuple[int, Any]:
    one_of(call, "state_event", "close reopen", 400)
    for one in forge.issues:
        if one.number == int(call.at[0]):
            text = call.body.get("description")
            one.title, one.body = call.body.get("title", one.title), _saved(forge, text) if text else one.body
            one.state = {"close": "closed", "reopen": "open"}.get(call.body.get("state_event", ""), one.state)
            one.edits += 1
            return 200, _issue(one)
    raise Refused(404, "404 Not found")
