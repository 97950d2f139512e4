"""Records beside each shipped version of the code where it came from.

It is no part of any digest: the same files are the same code, whatever commit they were in. No URL of a remote is kept:
people put tokens into those.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import canonical_json

GIT_SECONDS = 20.0


def git_facts(workdir: Path) -> dict[str, Any] | None:
    """`{commit, branch, dirty}` of the checkout that `workdir` is in; None outside any, or where git does not tell.

    `dirty`: tracked files below `workdir` differ from the commit, so that the commit alone does not say what ran.
    `branch` is null on a detached head. Never raises.
    """
    commit = _git(workdir, "rev-parse", "--verify", "HEAD")
    changed = _git(workdir, "status", "--porcelain", "--untracked-files=no", "--", ".")
    if not commit or changed is None:
        return None
    return {
        "commit": commit,
        "branch": _git(workdir, "symbolic-ref", "--short", "-q", "HEAD") or None,
        "dirty": bool(changed),
    }


def record(channel: Channel, code: str, workdir: Path) -> None:
    """Writes the facts of the work dir that `code` was just shipped from, unless they are there. Raises Unreachable."""
    path = box_layout.provenance_file(code)
    if channel.size(path) is not None:
        return
    facts = git_facts(workdir)
    if facts is not None:
        channel.write(path, canonical_json({"git": facts}) + b"\n")


def _git(workdir: Path, *arguments: str) -> str | None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", "-C", str(workdir), "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, env=env, timeout=GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else None
