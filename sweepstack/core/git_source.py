"""A work dir that is a git URL: `https://host/repo@ref`, brought to this machine at one commit.

A branch or a tag is asked for at each preview and `up`, and stands in the state as the commit that it was: a review
sees which code runs. A commit is fetched once into this user's cache and is never asked for again.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from sweepstack.onbox.common.canonical import sha256_hex
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import ConfigError, Unreachable
from sweepstack.onbox.common.run_process import run
from sweepstack.onbox.common.xdg import cache_folder

ASK_SECONDS = 60.0
FETCH_SECONDS = 900.0
SUBFOLDER = "#subdirectory="
_SCHEMES = ("https", "ssh", "file")
_SCP = re.compile(r"[A-Za-z0-9_.-]+@[A-Za-z0-9_.-]+:[^:]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*")
_EXAMPLE = "https://github.com/lab/digits@v1.2, git@github.com:lab/digits.git@main, …@v1.2#subdirectory=digits"
_OF_A_CHECKOUT = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX")


@dataclass(frozen=True)
class GitSource:
    """A repository, a ref in it (branch, tag, or a commit's 40 digits), and a folder in that ("" is all of it)."""

    url: str
    ref: str
    folder: str = ""

    @property
    def is_commit(self) -> bool:
        """Does it name one state of the code for good?"""
        return _COMMIT.fullmatch(self.ref) is not None

    def __str__(self) -> str:
        return f"{self.url}@{self.ref}" + (f"{SUBFOLDER}{self.folder}" if self.folder else "")


def parse(text: str, shown: str = "") -> GitSource | None:
    """What `job.workdir` names; None for a folder. Raises ConfigError for a URL that names no repository and ref.
    `shown`: how that quotes the text, by default as it is.

    A password or token in it is refused: the text stands in the state and in reviews.
    """
    if "://" not in text and not _SCP.match(text):
        return None
    place, _, folder = text.partition(SUBFOLDER)
    scheme, found, rest = place.partition("://")
    if found and scheme not in _SCHEMES:
        raise ConfigError(f"job.workdir: {scheme}:// is not fetched; write a folder, or one of: {_EXAMPLE}")
    host, slash, path = rest.partition("/") if found else place.partition(":")
    repository, _, ref = path.partition("@")
    url = f"{scheme}://{host}{slash}{repository}" if found else f"{host}:{repository}"
    if (found and urlsplit(url).password is not None) or (scheme == "https" and "@" in host):
        raise ConfigError(
            "job.workdir: a name or token in the URL would stand in the state; leave it to git's credential helper"
        )
    if not repository:
        raise ConfigError(f"job.workdir: {shown or text} names no repository; write one of: {_EXAMPLE}")
    if not _REF.fullmatch(ref) or ".." in ref:
        named = url if shown in ("", text) else shown
        raise ConfigError(
            f"job.workdir: which code of {named}? Write a branch, a tag or a commit behind it: {named}@main"
        )
    if folder.startswith(("/", "-")) or ".." in Path(folder).parts:
        raise ConfigError(f"job.workdir: the folder behind {SUBFOLDER} leads out of the repository")
    return GitSource(url, ref, folder.strip("/"))


def pinned(source: GitSource) -> GitSource:
    """The same at the commit that its ref is now. Asks the repository unless it names a commit; blocks for a minute at
    most. A tag comes before a branch of its name, as with git. Raises ConfigError."""
    if source.is_commit:
        return source
    names = (f"refs/tags/{source.ref}^{{}}", f"refs/tags/{source.ref}", f"refs/heads/{source.ref}")
    said = _git(["ls-remote", "--", source.url, *names], source.url, ASK_SECONDS)
    commits = {name: commit for commit, _, name in (line.partition("\t") for line in said.splitlines())}
    for name in names:
        if name in commits:
            return replace(source, ref=commits[name])
    hint = " (a commit is written with all of its 40 digits)" if re.fullmatch("[0-9a-f]{4,39}", source.ref) else ""
    listed = f"git ls-remote --heads --tags {shlex.quote(source.url)} lists them"
    raise ConfigError(f"job.workdir: {source.url} has no branch and no tag {source.ref!r}{hint}; {listed}")


def fetched(source: GitSource, progress: Callable[[str], None] = lambda _: None) -> Path:
    """The folder of a commit in this user's cache: a checkout with its submodules, as it was committed.

    Fetches it once, at most 15 minutes; changes that a person made in it are thrown away. Raises ConfigError, also
    for a ref that is no commit: `pinned` comes first.
    """
    if not source.is_commit:
        raise ConfigError(f"job.workdir: {source} names no commit")
    target = cache_folder() / "git" / sha256_hex(source.url.encode())[:16] / source.ref
    if not _is_whole(target):
        progress(f"job.workdir: fetching {source}")
        _fetch(source, target)
    folder = target / source.folder
    if not folder.is_dir():
        raise ConfigError(f"job.workdir: {source.url}@{source.ref[:12]} has no folder {source.folder!r}")
    return folder


def _is_whole(target: Path) -> bool:
    """Is the commit there, and unchanged? A person may have tried something in the cached copy."""
    if not target.is_dir():
        return False
    try:
        changed = _git(["-C", str(target), "status", "--porcelain", "--ignored"], str(target), ASK_SECONDS)
    except ConfigError:
        return False
    return not changed.strip()


def _fetch(source: GitSource, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent) as temporary:
        made = Path(temporary) / "checkout"
        here = ["-C", str(made)]
        _git(["init", "--quiet", "--", str(made)], source.url, ASK_SECONDS)
        try:
            _git([*here, "fetch", "--quiet", "--depth", "1", "--", source.url, source.ref], source.url, FETCH_SECONDS)
        except ConfigError:  # a server that gives no commit by its name: then all of them
            every = "+refs/*:refs/fetched/*"
            _git([*here, "fetch", "--quiet", "--no-tags", "--", source.url, every], source.url, FETCH_SECONDS)
        _git(
            [*here, "-c", "advice.detachedHead=false", "checkout", "--quiet", source.ref, "--"], source.url, ASK_SECONDS
        )
        if (made / ".gitmodules").exists():
            _git([*here, "remote", "add", "origin", source.url], source.url, ASK_SECONDS)  # what they are relative to
            modules = ["submodule", "--quiet", "update", "--init", "--recursive", "--depth", "1"]
            _git([*here, *modules], source.url, FETCH_SECONDS)
        if target.exists():  # another command's, or one that is not as it was committed
            old = Path(temporary) / "old"
            os.replace(target, old)
            shutil.rmtree(old, ignore_errors=True)
        try:
            os.replace(made, target)
        except OSError:
            if not _is_whole(target):  # else another process was first
                raise


def _git(arguments: list[str], what: str, seconds: float) -> str:
    """Runs git, which never asks for a password. Raises ConfigError with its last words."""
    env = {name: value for name, value in os.environ.items() if name not in _OF_A_CHECKOUT}
    env |= {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": ":".join(_SCHEMES), "LC_ALL": "C"}
    env.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes -o ConnectTimeout=20")
    try:
        done = run(
            what, ["git", *arguments], cwd="/", env=env, timeout=seconds
        )  # with the ssh that it may have started
    except FileNotFoundError:
        raise ConfigError("job.workdir is a git URL, and git is not on PATH: install it") from None
    except Unreachable:
        raise ConfigError(f"job.workdir: {what} did not answer within {seconds:.0f} s") from None
    if done.returncode != 0:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()[-3:]
        raise ConfigError(f"job.workdir: git can't read {what}: " + "; ".join(words))
    return done.stdout.decode("utf-8", "replace")
