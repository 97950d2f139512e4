"""A strict stand-in for the parts of GitHub's and GitLab's REST APIs that pipelines use: comments, statuses, issues.

Written from the public pages (docs.github.com/rest: issues/comments, commits/statuses, commits/commits, issues/issues;
docs.gitlab.com/api: notes, commits, issues), not from our clients. What they refuse is refused here: a wrong token, a
right that the token lacks, a text that is too long, a commit or request that is not there, a page over 100 rows. Where
they leave it open, the answer is the one that is hardest on a careless client: texts come back with CRLF line ends,
lists are the newest first by default, GitHub's issues hold requests too, and GitLab's notes those of the system.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

TOKEN = "ghs_0123456789abcdefTOKEN"
GITHUB_BODY = 65_536
GITLAB_BODY = 1_000_000
GITHUB_STATES = ("error", "failure", "pending", "success")
GITLAB_STATES = ("pending", "running", "success", "failed", "canceled", "skipped")


class Refused(Exception):
    """An answer that is no 2xx."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Thing:
    """A comment, a status, an issue or a request."""

    id: int
    number: int = 0
    title: str = ""
    body: str = ""
    state: str = ""
    name: str = ""
    commit: str = ""
    head: str = ""
    merged: str = ""
    of: int = 0
    system: bool = False
    edits: int = 0


@dataclass
class Forge:
    """One repository. `rights`: what the token may write. A test reads `comments`, `statuses` and `issues`."""

    kind: str
    repository: str = "team/sweeps"
    rights: set[str] = field(default_factory=lambda: {"pull-requests", "statuses", "issues"})
    url: str = ""
    requests: dict[int, Thing] = field(default_factory=dict)
    comments: list[Thing] = field(default_factory=list)
    statuses: list[Thing] = field(default_factory=list)
    issues: list[Thing] = field(default_factory=list)
    commits: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    lose: int = 0
    """How many writes from now on are carried out, and their answers lost."""
    _last: int = 100

    def request(self, number: int, head: str) -> Thing:
        """A request whose last commit is `head`: opened, or pushed to."""
        self.commits.add(head)
        found = self.requests.setdefault(number, Thing(self.next_id(), number, title=f"request {number}", state="open"))
        found.head = head
        return found

    def merge(self, number: int, commit: str) -> None:
        """The request is merged by this commit of the main branch."""
        self.commits.add(commit)
        self.requests[number].merged, self.requests[number].state = commit, "merged"

    def next_id(self) -> int:
        """An id that nothing else has."""
        self._last += 1
        return self._last

    def texts(self, number: int) -> list[str]:
        """The comments of a request that people or pipelines wrote, oldest first."""
        return [one.body for one in self.comments if one.of == number and not one.system]

    def newest(self, commit: str, name: str) -> Thing | None:
        """The newest status of this name."""
        found = [one for one in self.statuses if (one.commit, one.name) == (commit, name)]
        return found[-1] if found else None


@contextmanager
def serving(kind: str) -> Iterator[Forge]:
    """Serves one repository on loopback; `url` is its API's base."""
    forge = Forge(kind)
    table = _GITHUB if kind == "github" else _GITLAB

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        do_POST = do_PATCH = do_PUT = do_GET

        def _answer(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            forge.asked.append(f"{self.command} {parts.path}")
            try:
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    raise Refused(401, "Bad credentials")
                assert TOKEN not in self.path
                status, body = _routed(forge, table, self.command, parts, raw)
            except Refused as error:
                status, body = error.status, {"message": str(error)}
            if self.command != "GET" and status < 300 and forge.lose:
                forge.lose -= 1
                self.close_connection = True
                return
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    base = "" if kind == "github" else "/api/v4"
    forge.url = f"http://127.0.0.1:{server.server_address[1]}{base}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield forge
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


Handle = Callable[[Forge, tuple[str, ...], dict[str, str], dict[str, Any]], tuple[int, Any]]


def _routed(forge: Forge, table: dict[str, Handle], method: str, parts: Any, raw: bytes) -> tuple[int, Any]:
    query = dict(parse_qsl(parts.query))
    body = json.loads(raw) if raw else {}
    start = f"/repos/{forge.repository}" if forge.kind == "github" else "/api/v4/projects/1217"
    if not parts.path.startswith(start):
        raise Refused(404, "Not Found")
    for pattern, handle in table.items():
        verb, _, path = pattern.partition(" ")
        found = re.fullmatch(path, parts.path.removeprefix(start))
        if verb == method and found:
            return handle(forge, found.groups(), query, body)
    raise Refused(404, "Not Found")


def _page(rows: list[Any], query: dict[str, str], usual: int) -> list[Any]:
    size, page = int(query.get("per_page", usual)), int(query.get("page", "1"))
    if not 1 <= size <= 100:
        raise Refused(422, "per_page is at most 100")
    return rows[(page - 1) * size : page * size]


def _needs(forge: Forge, *rights: str) -> None:
    if not set(rights) & forge.rights:
        raise Refused(403, "Resource not accessible by integration")


def _text(body: dict[str, Any], key: str, most: int, *, status: int) -> str:
    text = body.get(key)
    if not isinstance(text, str) or not text:
        raise Refused(status, f"{key} is missing")
    if len(text) > most:
        raise Refused(status, f"{key} is too long (maximum is {most} characters)")
    return text


def _crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _commented(forge: Forge, number: int, text: str) -> Thing:
    if number not in forge.requests and number not in {one.number for one in forge.issues}:
        raise Refused(404, "Not Found")
    made = Thing(forge.next_id(), body=text, of=number)
    forge.comments.append(made)
    return made


def _edited(forge: Forge, id: int, text: str) -> Thing:
    for one in forge.comments:
        if one.id == id:
            one.body, one.edits = text, one.edits + 1
            return one
    raise Refused(404, "Not Found")


# GitHub


def _gh_comment(one: Thing) -> dict[str, Any]:
    return {"id": one.id, "body": _crlf(one.body), "user": {"login": "github-actions[bot]"}}


def _gh_list_comments(forge: Forge, at: tuple[str, ...], query: dict[str, str], _: Any) -> tuple[int, Any]:
    return 200, _page([_gh_comment(one) for one in forge.comments if one.of == int(at[0])], query, 30)


def _gh_add_comment(forge: Forge, at: tuple[str, ...], _: Any, body: dict[str, Any]) -> tuple[int, Any]:
    _needs(forge, "pull-requests", "issues")
    return 201, _gh_comment(_commented(forge, int(at[0]), _text(body, "body", GITHUB_BODY, status=422)))


def _gh_edit_comment(forge: Forge, at: tuple[str, ...], _: Any, body: dict[str, Any]) -> tuple[int, Any]:
    _needs(forge, "pull-requests", "issues")
    return 200, _gh_comment(_edited(forge, int(at[0]), _text(body, "body", GITHUB_BODY, status=422)))


def _gh_status(one: Thing) -> dict[str, Any]:
    return {"id": one.id, "state": one.state, "description": one.body, "context": one.name}


def _gh_add_status(forge: Forge, at: tuple[str, ...], _: Any, body: dict[str, Any]) -> tuple[int, Any]:
    _needs(forge, "statuses")
    if at[0] not in forge.commits:
        raise Refused(422, f"No commit found for SHA: {at[0]}")
    if body.get("state") not in GITHUB_STATES:
        raise Refused(422, "state is not included in the list")
    text = body.get("description") or ""
    if len(text) > 140:
        raise Refused(422, "description is too long (maximum is 140 characters)")
    if (url := body.get("target_url") or "") and not url.startswith(("http://", "https://")):
        raise Refused(422, "target_url must use http(s) scheme")
    made = Thing(forge.next_id(), state=body["state"], body=text, name=body.get("context", "default"), commit=at[0])
    forge.statuses.append(made)
    return 201, _gh_status(made)


def _gh_statuses(forge: Forge, at: tuple[str, ...], query: dict[str, str], _: Any) -> tuple[int, Any]:
    rows = [_gh_status(one) for one in reversed(forge.statuses) if one.commit == at[0]]
    return 200, _page(rows, query, 30)


def _gh_pulls(forge: Forge, at: tuple[str, ...], query: dict[str, str], _: Any) -> tuple[int, Any]:
    rows = [
        {
            "number": one.number,
            "state": "closed" if one.merged else "open",
            "merged_at": "2026-11-23T20:00:00Z" if one.merged else None,
            "merge_commit_sha": one.merged or None,
            "head": {"sha": one.head},
        }
        for one in forge.requests.values()
        if at[0] in (one.head, one.merged)
    ]
    return 200, _page(rows, query, 30)


def _gh_issue(one: Thing, *, request: bool = False) -> dict[str, Any]:
    shown = {"number": one.number, "title": one.title, "body": _crlf(one.body), "state": one.state}
    shown["html_url"] = f"https://example.invalid/issues/{one.number}"
    return {**shown, "pull_request": {}} if request else shown


def _gh_issues(forge: Forge, _: Any, query: dict[str, str], __: Any) -> tuple[int, Any]:
    state = query.get("state", "open")
    rows = [_gh_issue(one) for one in forge.issues if state in ("all", one.state)]
    rows += [_gh_issue(one, request=True) for one in forge.requests.values() if state in ("all", one.state)]
    rows.sort(key=lambda one: one["number"], reverse=query.get("direction", "desc") == "desc")
    return 200, _page(rows, query, 30)


def _gh_add_issue(forge: Forge, _: Any, __: Any, body: dict[str, Any]) -> tuple[int, Any]:
    _needs(forge, "issues")
    text = _text(body, "body", GITHUB_BODY, status=422)
    number = 1 + max([0, *forge.requests, *(one.number for one in forge.issues)])
    title = _text(body, "title", 256, status=422)
    made = Thing(forge.next_id(), number=number, title=title, body=text, state="open")
    forge.issues.append(made)
    return 201, _gh_issue(made)


def _gh_edit_issue(forge: Forge, at: tuple[str, ...], _: Any, body: dict[str, Any]) -> tuple[int, Any]:
    _needs(forge, "issues")
    for one in forge.issues:
        if one.number == int(at[0]):
            if body.get("state", "open") not in ("open", "closed"):
                raise Refused(422, "state is not open or closed")
            one.title, one.body = body.get("title", one.title), body.get("body", one.body)
            one.state, one.edits = body.get("state", one.state), one.edits + 1
            return 200, _gh_issue(one)
    raise Refused(404, "Not Found")


_GITHUB: dict[str, Handle] = {
    r"GET /issues/(\d+)/comments": _gh_list_comments,
    r"POST /issues/(\d+)/comments": _gh_add_comment,
    r"PATCH /issues/comments/(\d+)": _gh_edit_comment,
    r"POST /statuses/(\w+)": _gh_add_status,
    r"GET /commits/(\w+)/statuses": _gh_statuses,
    r"GET /commits/(\w+)/pulls": _gh_pulls,
    r"GET /issues": _gh_issues,
    r"POST /issues": _gh_add_issue,
    r"PATCH /issues/(\d+)": _gh_edit_issue,
}

# GitLab


def _gl_note(one: Thing) -> dict[str, Any]:
    return {"id": one.id, "body": _crlf(one.body), "system": one.system}


def _gl_notes(forge: Forge, at: tuple[str, ...], query: dict[str, str], _: Any) -> tuple[int, Any]:
    rows = [Thing(1, body="changed the description", of=int(at[0]), system=True)]
    rows += [one for one in forge.comments if one.of == int(at[0])]
    if query.get("sort", "desc") == "desc":
        rows.reverse()
    return 200, _page([_gl_note(one) for one in rows], query, 20)


def _gl_add_note(forge: Forge, at: tuple[str, ...], _: Any, body: dict[str, Any]) -> tuple[int, Any]:
    return 201, _gl_note(_commented(forge, int(at[0]), _text(body, "body", GITLAB_BODY, status=400)))


def _gl_edit_note(forge: Forge, at: tuple[str, ...], _: Any, body: dict[str, Any]) -> tuple[int, Any]:
    return 200, _gl_note(_edited(forge, int(at[1]), _text(body, "body", GITLAB_BODY, status=400)))


def _gl_status(one: Thing) -> dict[str, Any]:
    return {"id": one.id, "status": one.state, "description": one.body, "name": one.name, "sha": one.commit}


def _gl_add_status(forge: Forge, at: tuple[str, ...], _: Any, body: dict[str, Any]) -> tuple[int, Any]:
    if at[0] not in forge.commits:
        raise Refused(404, "404 Commit Not Found")
    if body.get("state") not in GITLAB_STATES:
        raise Refused(400, "state does not have a valid value")
    if len(body.get("description") or "") > 255:
        raise Refused(400, "description is too long (maximum is 255 characters)")
    name = body.get("name") or body.get("context") or "default"
    text = body.get("description") or ""
    made = Thing(forge.next_id(), state=body["state"], body=text, name=name, commit=at[0])
    forge.statuses.append(made)
    return 201, _gl_status(made)


def _gl_statuses(forge: Forge, at: tuple[str, ...], query: dict[str, str], _: Any) -> tuple[int, Any]:
    rows = [one for one in forge.statuses if one.commit == at[0] and query.get("name") in (None, one.name)]
    if query.get("all") != "true":  # the newest of each name
        rows = list({one.name: one for one in rows}.values())
    return 200, _page([_gl_status(one) for one in rows], query, 20)


def _gl_merge_requests(forge: Forge, at: tuple[str, ...], query: dict[str, str], _: Any) -> tuple[int, Any]:
    rows = [
        {
            "iid": one.number,
            "state": "merged" if one.merged else "opened",
            "sha": one.head,
            "merge_commit_sha": one.merged or None,
            "squash_commit_sha": None,
        }
        for one in forge.requests.values()
        if at[0] in (one.head, one.merged)
    ]
    return 200, _page(rows, query, 20)


def _gl_issue(one: Thing) -> dict[str, Any]:
    shown = {"iid": one.number, "title": one.title, "description": _crlf(one.body)}
    return {**shown, "state": "opened" if one.state == "open" else "closed", "web_url": f"https://x/{one.number}"}


def _gl_issues(forge: Forge, _: Any, query: dict[str, str], __: Any) -> tuple[int, Any]:
    wanted = query.get("state", "all")
    rows = [shown for shown in map(_gl_issue, forge.issues) if wanted in ("all", shown["state"])]
    if query.get("sort", "desc") == "desc":
        rows.reverse()
    return 200, _page(rows, query, 20)


def _gl_add_issue(forge: Forge, _: Any, __: Any, body: dict[str, Any]) -> tuple[int, Any]:
    _needs(forge, "issues")
    title = _text(body, "title", 255, status=400)
    text = body.get("description") or ""
    made = Thing(forge.next_id(), number=len(forge.issues) + 1, title=title, body=text, state="open")
    forge.issues.append(made)
    return 201, _gl_issue(made)


def _gl_edit_issue(forge: Forge, at: tuple[str, ...], _: Any, body: dict[str, Any]) -> tuple[int, Any]:
    for one in forge.issues:
        if one.number == int(at[0]):
            if body.get("state_event", "close") not in ("close", "reopen"):
                raise Refused(400, "state_event does not have a valid value")
            one.title, one.body = body.get("title", one.title), body.get("description", one.body)
            one.state = {"close": "closed", "reopen": "open"}.get(body.get("state_event", ""), one.state)
            one.edits += 1
            return 200, _gl_issue(one)
    raise Refused(404, "404 Not found")


_GITLAB: dict[str, Handle] = {
    r"GET /merge_requests/(\d+)/notes": _gl_notes,
    r"POST /merge_requests/(\d+)/notes": _gl_add_note,
    r"PUT /merge_requests/(\d+)/notes/(\d+)": _gl_edit_note,
    r"POST /statuses/(\w+)": _gl_add_status,
    r"GET /repository/commits/(\w+)/statuses": _gl_statuses,
    r"GET /repository/commits/(\w+)/merge_requests": _gl_merge_requests,
    r"GET /issues": _gl_issues,
    r"POST /issues": _gl_add_issue,
    r"PUT /issues/(\d+)": _gl_edit_issue,
}
