"""What the jobs need of GitHub or GitLab: comments, statuses and issues."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from sweepstack.cli.output import Unsure
from sweepstack.onbox.common.errors import OutcomeUnknown
from sweepstack.review.markdown import MOST

State = Literal["success", "failure", "error"]
TOKENS = ("GITHUB_TOKEN", "GITLAB_TOKEN")
"""The environment variables with a forge's token. No command that a job starts inherits them."""

T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """What the forge says of the job that runs. `change`: the number of the pull or merge request; None: none.

    `head`: the commit that gets a status; `before`: the branch's commit before a push, "" where it had none;
    `target`: the branch that the change is for, or that was pushed to; `default`: the repository's main branch;
    `foreign`: the change comes from a fork; `url`: the job's page.
    """

    change: int | None
    head: str
    before: str
    target: str
    default: str
    foreign: bool
    url: str


@dataclass(frozen=True)
class Status:
    """A status of a commit. `text`: its description."""

    state: str
    text: str


class Forge(Protocol):
    """The calls of one forge. Each blocks for a minute and a half at most, and raises PlatformError."""

    def comment(self, change: int, marker: str, body: str) -> None:
        """Makes the one comment of this change whose first line is `marker`, or replaces its text. Idempotent."""

    def comments(self, change: int) -> list[tuple[int, str]]:
        """Id and text of each comment of a change, oldest first."""

    def set_status(self, commit: str, name: str, state: State, text: str, url: str) -> None:
        """Adds a status to a commit: the newest of a name is the one that counts."""

    def status(self, commit: str, name: str) -> Status | None:
        """The newest status of this name; None where there is none."""

    def change_of(self, commit: str) -> tuple[int, str] | None:
        """The change whose merge brought this commit: its number, and the last commit of its own. None: none did."""

    def issue(self, marker: str, title: str, body: str, *, open: bool) -> str:
        """Keeps the one open issue whose first line is `marker`: makes it or replaces its text; with `open` False
        replaces the text and closes it, where there is one. Returns its page, "" where there is none."""


def once(make: Callable[[], None], there: Callable[[], bool]) -> None:
    """Makes one thing. Where the answer is lost, looks whether it is there; raises OutcomeUnknown where it is not."""
    try:
        make()
    except OutcomeUnknown:
        if not there():
            raise


def begins(text: str, marker: str) -> bool:
    """Whether the first line is this marker. A forge may have changed the line's end."""
    return text.lstrip("\ufeff").split("\n", 1)[0].strip() == marker


def clipped(text: str) -> str:
    """The text, shortened where the forge would refuse it."""
    return text if len(text) <= MOST else text[: MOST - 80] + "\n\n(cut here: the job's log has the rest)\n"


def token(name: str) -> str:
    """The forge's token. Raises Unsure where the variable is empty: which one it is, and who sets it."""
    value = os.environ.get(name, "")
    if not value:
        raise Unsure(f"{name} is not set: the step that posts needs it (docs/pipelines.md)")
    return value
