"""Which stacks a change touches: by their files, and by the code that they ship. Read from git."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from sweepstack.config.edit.stack_file import StackFile
from sweepstack.config.project import stack_name, stack_path
from sweepstack.onbox.common.errors import ConfigError, SweepstackError

SECONDS = 120.0


@dataclass(frozen=True)
class Touched:
    """A stack that a change touches. `removed`: its stack file is not there any more."""

    stack: str
    paths: tuple[str, ...]
    """What is compared, relative to the repository's root: the stack file, and the folder that it ships."""
    removed: bool = False


def git(root: Path, *words: str) -> str:
    """What a git command printed, without the last line break. Blocks for two minutes at most.

    Raises SweepstackError with git's words when it fails.
    """
    try:
        done = subprocess.run(
            ["git", "-c", "core.quotePath=false", *words],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SweepstackError(f"`git {' '.join(words[:2])}` did not end: {error}") from error
    if done.returncode:
        raise SweepstackError(f"`git {' '.join(words)}` failed: {done.stderr.strip()}")
    return done.stdout.rstrip("\n")


def fork_point(root: Path, branch: str) -> str:
    """The commit from which HEAD left `branch` of the remote.

    Raises SweepstackError: a shallow clone, no such branch.
    """
    try:
        return git(root, "merge-base", "HEAD", f"origin/{branch}")
    except SweepstackError as error:
        raise SweepstackError(
            f"where this change left {branch} is not known ({error}). The clone needs the whole history: "
            "fetch-depth: 0 (GitHub), GIT_DEPTH: 0 (GitLab)"
        ) from error


def touched(root: Path, base: str, head: str = "HEAD") -> list[Touched]:
    """The stacks that differ between two commits, by name; `root` is the project's folder at `head`.

    A stack whose file names a folder of this repository as `job.workdir` is touched by a change below that, too.
    Raises SweepstackError where git does not know a commit.
    """
    top = Path(git(root, "rev-parse", "--show-toplevel"))
    # -z: between line breaks git quotes a name with a quote, a tab or a backslash, and it would be below no folder.
    changed = set(git(top, "diff", "-z", "--name-only", "--no-renames", base, head).split("\0")) - {""}
    here = {stack: paths_of(top, root, stack) for stack in StackFile.stacks(root)}
    found = [Touched(stack, paths) for stack, paths in here.items() if _any_below(changed, paths)]
    folder = stack_path(root, "x").parent
    for path in map(Path, changed):
        whole = top / path
        if whole.parent == folder and path.match("Pulumi.*.yaml") and not whole.exists():
            found.append(Touched(stack_name(path), (str(path),), removed=True))
    return sorted(found, key=lambda one: one.stack)


def paths_of(top: Path, root: Path, stack: str) -> tuple[str, ...]:
    """What of the repository makes a stack: its file, and the folder of its job where that lies in the repository."""
    file = StackFile.locate(root, stack)
    paths = [file.path.resolve()]
    try:
        workdir = file.sweep().get("job", {}).get("workdir")
    except (ConfigError, AttributeError):
        workdir = None
    if isinstance(workdir, str) and workdir:
        paths.append((root / workdir).resolve())
    inside = [path for path in paths if path.is_relative_to(top.resolve())]
    return tuple(str(path.relative_to(top.resolve())) for path in inside)


def last_commit(root: Path, base: str, paths: tuple[str, ...]) -> str:
    """The last commit of the main line after `base` that changed one of these paths; "" where none did."""
    top = Path(git(root, "rev-parse", "--show-toplevel"))
    return git(top, "log", "-1", "--first-parent", "--format=%H", f"{base}..HEAD", "--", *paths)


def superseded(root: Path, branch: str, paths: tuple[str, ...]) -> bool:
    """Whether the remote's branch has other bytes of these paths by now. Asks the remote.

    A private repository's remote refuses a clone that keeps no credentials: then what was last fetched counts, and a
    step with the token does that just before. Raises SweepstackError where nothing was ever fetched.
    """
    top = Path(git(root, "rev-parse", "--show-toplevel"))
    try:
        git(top, "fetch", "--quiet", "origin", branch)
        now = "FETCH_HEAD"
    except SweepstackError:
        now = f"refs/remotes/origin/{branch}"
    return bool(git(top, "diff", "--name-only", "HEAD", now, "--", *paths))


def _any_below(changed: set[str], paths: tuple[str, ...]) -> bool:
    return any(name == path or name.startswith(f"{path}/") or path == "." for name in changed for path in paths)
