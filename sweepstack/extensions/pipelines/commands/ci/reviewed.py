"""`sweepctl ci reviewed`: which review each merged stack had. Its step has the token alone."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Any

from sweepstack.cli.output import NO, UNSURE, YES, Out
from sweepstack.extensions.pipelines.changes import git, last_commit, newer, superseded, touched
from sweepstack.extensions.pipelines.commands.ci.post import status_name
from sweepstack.extensions.pipelines.commands.ci.up import BEGUN, cut
from sweepstack.extensions.pipelines.forge import Forge, here
from sweepstack.extensions.pipelines.steps import REVIEWED, Result
from sweepstack.onbox.common.canonical import DIGEST, write_atomically
from sweepstack.onbox.common.errors import No
from sweepstack.operations.sweep.target import project_root

MOST_NEWER = 50
"""So many newer commits are looked at: each is a request to the forge."""


def command(folder: Path, only: str = "", digest: str = "", json: bool = False) -> int:
    """Write down which review each stack of this push had, by the status on its request's last commit."""
    job, client = here()
    root = project_root()
    if only or digest:
        if not only or not DIGEST.fullmatch(digest):
            raise No("by hand it takes both: the stack, and the whole digest (sha256: and 64 hex digits) of a review")
        found: dict[str, dict[str, Any]] = {only: {"digest": digest, "change": None, "why": "", "shared": False}}
    else:
        base = job.before or git(root, "rev-parse", "HEAD^1")
        merged = [one for one in touched(root, base) if not one.removed]
        api = client() if merged else None
        found = {
            one.stack: {
                **_of(api, one.stack, last_commit(root, base, one.paths)),
                "shared": one.shared,
                "later": _later(api, root, job.target, one.stack),
            }
            for one in merged
            if api
        }
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / REVIEWED, json_module.dumps(found, indent=1).encode())
    Result("up", [cut(stack, False, one) for stack, one in found.items()], UNSURE if found else YES).write(folder)
    out = Out(as_json=json)
    out.document({"stacks": found})
    for stack, one in found.items():
        out.line(f"{stack}: {one['digest'] or one['why']}")
    return NO if any(one["why"] for one in found.values()) else YES


def _later(api: Forge, root: Path, branch: str, stack: str) -> str:
    """The newer commit of the branch whose `up` of this stack was begun before this one, as where an old job is started
    again; "" where there is none. What is older than that would undo it."""
    if not superseded(root, branch, stack):
        return ""
    for commit in newer(root, branch)[:MOST_NEWER]:
        status = api.status(commit, status_name("up", stack))
        if status is not None and status.text.startswith(BEGUN):
            return commit
    return ""


def _of(api: Forge, stack: str, commit: str) -> dict[str, Any]:
    """The digest of the review that said that this stack may go on; or why there is none."""
    change = api.change_of(commit) if commit else None
    if change is None:
        return {"digest": "", "change": None, "why": f"{commit[:12] or 'its change'} came without a reviewed request"}
    number, head = change
    status = api.status(head, status_name("review", stack))
    digest = DIGEST.search(status.text) if status else None
    if status is None or status.state != "success" or digest is None:
        said = f"{status.state}: {status.text}" if status else "none"
        return {"digest": "", "change": number, "why": f"request {number} has no review that may go on ({said})"}
    return {"digest": digest[0], "change": number, "why": ""}
