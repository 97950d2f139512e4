"""What the jobs need of GitHub or GitLab: comments, statuses and issues."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, Protocol

from sweepstack.cli.output import Unsure
from sweepstack.core.paths import docs_page
from sweepstack.review.markdown import MOST

State = Literal["success", "failure", "error"]
TOKENS = ("GITHUB_TOKEN", "GITLAB_TOKEN")
"""The environment variables with a forge's token. No command that a job starts inherits them."""


@dataclass(frozen=True)
class Job:
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
