"""What both forges share: pages, lost answers, the one comment or issue kept up to date.

A comment or an issue counts as ours only where this token wrote it: on a public repository a stranger can write one
with the same first line, and would choose what stands there, or keep the real one from being seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from sweepstack.cli.commands.ci.forge import Comment, State, Status, clipped, first_line, same
from sweepstack.cli.output import Unsure
from sweepstack.onbox.common.errors import OutcomeUnknown
from sweepstack.platforms.common.http_client import Answer, HttpClient

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

    def _edited(self, path: str, body: Mapping[str, Any], there: Callable[[], bool]) -> Answer | None:
        """Sets a text, again where the answer is lost and it is not there. None: the thing itself is gone (404)."""
        for left in reversed(range(TRIES)):
            try:
                answer = self._http.write(self.EDIT, self._root + path, body)
            except OutcomeUnknown:
                if there():
                    return Answer(200)
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

    def _write(self, method: str, path: str, body: Mapping[str, Any]) -> Answer:
        return self._judged(self._http.write(method, self._root + path, body), f"{method} {path}")

    def _judged(self, answer: Answer, asked: str) -> Answer:
        if not answer.ok:
            raise self._http.refusal(answer, asked)
        return answer
