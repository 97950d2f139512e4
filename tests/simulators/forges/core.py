"""One repository of a forge: what lies in it, who asks, and the faults that a test wants."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

TOKEN = "ghs_0123456789abcdefTOKEN"
JOB_TOKEN = "glcbt-64_0123456789abcdefJOB"
"""GitLab's CI_JOB_TOKEN: each job has it, and it may read a few things only."""
ME = "github-actions[bot]"
MY_ID = 41


class Refused(Exception):
    """An answer that is no 2xx. `body`: the document; else the message in the forge's usual form."""

    def __init__(self, status: int, message: str, *, body: Any = None, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.body, self.headers = status, body, headers or {}


@dataclass
class Thing:
    """A comment, a status, an issue or a request. `author`: who wrote it; a test that adds one itself is a stranger."""

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
    hidden: bool = False
    """GitLab: a note that this token may not read. Its place on a page stays empty (lib/api/notes.rb: it is taken out
    after the page was cut, so that a page may have fewer rows than asked for, with more pages behind it)."""
    edits: int = 0
    author: str = "mallory"
    at: str = "2026-11-23T20:00:00Z"
    repository: str | None = "team/sweeps"
    """GitHub: where the branch of a request lies; None: the fork was deleted."""
    target: str = "main"
    decision: str | None = None
    """GitHub: what reviewers decided; None: the branch asks for none."""


@dataclass
class Fault:
    """The next `times` requests that match get this answer. `carried`: the request is carried out before."""

    match: re.Pattern[str]
    status: int
    carried: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    text: str = ""
    times: int = 1


@dataclass
class Route:
    """One call of an API: `query` and `body` are the names that its reference has, `needs` the rights, any of which
    does."""

    verb: str
    path: re.Pattern[str]
    handle: Callable[[Forge, Call], tuple[int, Any]]
    query: frozenset[str]
    body: frozenset[str]
    needs: frozenset[str]
    job_token: bool = False


@dataclass
class Call:
    """One request: what the path names, the query and the body."""

    at: tuple[str, ...]
    query: dict[str, str]
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)
    """Of the answer."""
    path: str = ""


@dataclass
class Forge:
    """One repository. `rights`: what the token may write (GitHub: the job's permissions; `x:read` only reads).

    A test reads `comments`, `statuses` and `issues`.
    """

    kind: str
    repository: str = "team/sweeps"
    rights: set[str] = field(default_factory=lambda: {"pull-requests", "statuses", "issues"})
    scope: str = "api"
    """GitLab: the token's scope; `read_api` may not write."""
    me: str = ME
    url: str = ""
    graphql: str = ""
    requests: dict[int, Thing] = field(default_factory=dict)
    comments: list[Thing] = field(default_factory=list)
    statuses: list[Thing] = field(default_factory=list)
    issues: list[Thing] = field(default_factory=list)
    runs: list[Thing] = field(default_factory=list)
    """GitHub: the runs of workflows for requests, the newest last: `name` the file, `edits` how often started again."""
    people: dict[str, str] = field(default_factory=dict)
    """GitHub: login → what that user may do: admin, write, read, none."""
    commits: set[str] = field(default_factory=set)
    protected: set[str] = field(default_factory=set)
    """GitLab: commits of a branch that this token's role may neither push nor merge to."""
    asked: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    """GitLab: the quick actions that a text held, and that were carried out in the token's name."""
    faults: list[Fault] = field(default_factory=list)
    between: dict[str, Callable[[], None]] = field(default_factory=dict)
    """What happens just before a request that matches this pattern is looked at. Once."""
    issues_off: bool = False
    forks_run_here: bool | None = False
    """GitLab: ci_allow_fork_pipelines_to_run_in_parent_project. A new project has it on; None: the answer lacks it."""
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

    def fail(self, match: str, status: int, **more: Any) -> None:
        """The next request that matches (such as `POST .*/comments`) gets this answer. See `Fault`."""
        self.faults.append(Fault(re.compile(match), status, **more))

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

    def need(self, rights: frozenset[str], *, writing: bool) -> None:
        """Raises Refused where the token has none of these rights: to write implies to read."""
        have = self.rights | (set() if writing else {right.removesuffix(":read") for right in self.rights})
        if rights and not rights & have:
            raise Refused(403, "Resource not accessible by integration" if self.kind == "github" else "403 Forbidden")


def route(
    table: list[Route], asked: str, *, query: str = "", body: str = "", needs: str = "", job_token: bool = False
) -> Callable[[Callable[[Forge, Call], tuple[int, Any]]], Callable[[Forge, Call], tuple[int, Any]]]:
    """Adds a call to a table. `asked`: the verb and a pattern of the path below the repository."""

    def added(handle: Callable[[Forge, Call], tuple[int, Any]]) -> Callable[[Forge, Call], tuple[int, Any]]:
        verb, _, path = asked.partition(" ")
        names = (frozenset(words.split()) for words in (query, body, needs))
        table.append(Route(verb, re.compile(path), handle, *names, job_token))
        return handle

    return added


def number(call: Call, key: str, usual: int) -> int:
    """A number of the query. Raises Refused."""
    text = call.query.get(key, str(usual))
    if not text.isdigit() or int(text) < 1:
        raise Refused(400, f"{key} is invalid")
    return int(text)


def one_of(call: Call, key: str, allowed: str, status: int) -> None:
    """Raises Refused where a value of the query or the body is none of these."""
    for values in (call.query, call.body):
        if key in values and values[key] not in allowed.split():
            raise Refused(status, f"{key} does not have a valid value")


def text_of(call: Call, key: str, most: int, *, status: int, may_lack: bool = False) -> str:
    """A text of the body. Raises Refused: not there, empty, no text, too long."""
    text = call.body.get(key)
    if text is None and may_lack:
        return ""
    if not isinstance(text, str) or not text:
        raise Refused(status, f"{key} is missing")
    if len(text) > most:
        raise Refused(status, f"{key} is too long (maximum is {most} characters)")
    return text


def crlf(text: str) -> str:
    """Texts come back with the line ends of a web form: GitLab's notes do (GitLab doc/api/notes shows `\\r\\n`)."""
    return text.replace("\r\n", "\n").replace("\n", "\r\n")
