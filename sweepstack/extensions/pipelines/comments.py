"""Commands by comment on a request of GitHub: what one asks for, and which settings one can bring up.

On a public repository anyone can write one. So nothing of it counts but what GitHub itself says: who wrote it, when,
what stands there by now, and what that person may do. Its text is compared with the commands as a whole, and goes into
no shell, no path and no answer.

Sources: docs.github.com/actions/reference/security/secure-use (script injection, untrusted checkout),
docs.github.com/actions/reference/workflows-and-actions/events-that-trigger-workflows (issue_comment).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sweepstack.config.edit.stack_file import SWEEP_KEY, StackFile
from sweepstack.config.file import parse_document
from sweepstack.extensions.pipelines.changes import git, superseded, touched
from sweepstack.onbox.common.canonical import DIGEST
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import ConfigError, No, SweepstackError, Unsure

COMMAND = re.compile(rf"/sweep (?:(?P<review>review)|up (?P<digest>{DIGEST.pattern}))")
SETTINGS = (
    "cells",
    "boxes.*.want",
    "budget.usd",
    "budget.hours",
    "budget.notify",
    "budget.stop",
    "max_price",
    "bid",
    "lease",
    "when_done",
    "ignore_balance",
    "job.timeout",
    "job.retries",
    "job.stall",
)
"""What of a sweep a comment can bring up: cells, and numbers. None of it runs anything on the machine of the job, names
another place for code or keys, or allows an end. All else (a command, host, offer, approval) comes by a merge."""


@dataclass(frozen=True)
class Comment:
    """A comment, as the event has it. `change`: the request's number; `login`, `user`: who wrote it."""

    id: int
    change: int
    login: str
    user: int
    text: str


def of_event(event: Mapping[str, Any]) -> Comment:
    """The comment that started the job. Raises No where it is no new comment of a person on an open request."""
    issue, comment = event.get("issue") or {}, event.get("comment") or {}
    author = comment.get("user") or {}
    if not comment or not author:
        raise Unsure("the event of this job is no comment")
    if event.get("action") != "created":
        raise No("only a new comment counts: an edited one is not what was read")
    if not issue.get("pull_request"):
        raise No("this is an issue, and no request")
    if issue.get("state") != "open":
        raise No("this request is closed")
    if author.get("type") != "User" or comment.get("performed_via_github_app"):
        raise No("a program wrote this comment, and commands are for people")
    return Comment(comment["id"], issue["number"], author["login"], author["id"], str(comment.get("body") or ""))


def asked_of(text: str) -> str:
    """The digest that is to be brought up; "" where a review is asked for. Raises No for anything else."""
    found = COMMAND.fullmatch(text.strip())
    if found is None:
        raise No("a command is the whole comment, one line: `/sweep review`, or `/sweep up` and the whole digest")
    return found["digest"] or ""


def take_over(root: Path, branch: str, stack: str, head: str) -> str:
    """Writes the settings of a request's commit into the stack file here, and nothing else that the request has.
    Returns why not, "" where it did.

    A stack file can run commands on this machine, so no setting is taken over that could (`SETTINGS`). What is written
    is the content as it was read and compared here: the engine's own reader finds no other meaning in it.
    """
    if stack not in StackFile.stacks(root):  # a status of any name can be set by all who may write
        return f"{branch} has no stack of this name"
    top = Path(git(root, "rev-parse", "--show-toplevel"))
    file = StackFile.locate(root, stack)
    name = file.path.resolve().relative_to(top.resolve()).as_posix()
    try:
        base = git(root, "merge-base", "HEAD", head)
    except SweepstackError as error:
        return f"the commit {head[:12]} is not here, as where the request was pushed to since: {error}"
    if superseded(root, branch, stack) or git(top, "diff", "--name-only", base, "HEAD", "--", name):
        return f"{branch} has another file of it since the request was begun: bring the request up to date"
    one = next((one for one in touched(root, base, head) if one.stack == stack), None)
    if one is None:
        return "the request does not touch it"
    changed = git(top, "diff", "-z", "--name-only", "--no-renames", base, head, "--", *one.paths).split("\0")
    if code := sorted({*changed} - {"", name}):
        return f"the request changes what runs, too ({', '.join(code[:5])}): that comes by a merge"
    try:
        old = _data(file.path.read_text(encoding="utf-8"), file.shown)
        new = _data(git(top, "show", f"{head}:{name}"), file.shown)
        text = json.dumps(new, ensure_ascii=False, allow_nan=False)
    except (SweepstackError, ValueError) as error:
        return f"its stack file does not read: {error}"
    if others := list(_others(old, new)):
        return f"a comment brings up no change of {', '.join(others[:5])}: that comes by a merge"
    file.path.write_text(f"{text}\n", encoding="utf-8")
    return ""


def _data(text: str, shown: str) -> dict[str, Any]:
    """Raises ConfigError where two readers could find two meanings in it."""
    document = parse_document(text, shown)
    if document.flaws:
        raise ConfigError(f"{shown}, line {document.flaws[0].line}: {document.flaws[0].text}")
    return document.data


def _others(old: Any, new: Any, *at: str) -> Iterator[str]:
    """The paths below which two stack files differ, and not in what a comment can bring up."""
    if json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True):
        return
    below = at[2:] if at[:2] == ("config", SWEEP_KEY) else ()
    if below and any(_is(below, setting.split(".")) for setting in SETTINGS):
        return
    if not (old or new) or any(side is not None and not isinstance(side, dict) for side in (old, new)):
        yield ".".join(below or at)
        return
    old, new = old or {}, new or {}
    for key in sorted({*old, *new}):
        yield from _others(old.get(key), new.get(key), *at, key)


def _is(path: tuple[str, ...], setting: list[str]) -> bool:
    return len(path) == len(setting) and all(map(fnmatchcase, path, setting))
