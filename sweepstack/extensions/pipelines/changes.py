"""Which stacks a change touches: by their files, their code, and what all share. Read from git."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from sweepstack.config.declared import declared_path
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.config.file import read_document
from sweepstack.config.project import POLICY, SIGNERS, stack_name, stack_path
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import ConfigError, SweepstackError

SECONDS = 120.0
_PROJECT = re.compile(
    rf"Pulumi\.yaml|{re.escape(POLICY)}|policy\.ya?ml|{SIGNERS}|profiles/.+|\.(pulumi|python|tool)-versions?"
    r"|(requirements|constraints)([^/]*\.(txt|in)|/.+)|pyproject\.toml|setup\.cfg|Pipfile|[^/]+\.lock",
    re.IGNORECASE,
)
"""What all stacks of a project share beside the program: its policy and who signs, its profiles, its packages."""
_PIPELINES = re.compile(r"\.github/(workflows|actions)/.+|\.gitlab/.+|\.gitlab-ci\.ya?ml")
"""The same of a repository."""


@dataclass(frozen=True)
class Touched:
    """A stack that a change touches. `removed`: its stack file is not there any more; `shared`: nothing of its own
    changes, only what all stacks share."""

    stack: str
    paths: tuple[str, ...]
    """What is compared, relative to the repository's root: the stack file, the folder that it ships, and which of the
    files that all stacks share this change has."""
    removed: bool = False
    shared: bool = False


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

    A stack is touched by its file, by what lies below a folder of this repository that its file names as `job.workdir`,
    and by what all stacks share: the program, Pulumi.yaml, the policy and its signers, profiles, the packages and the
    pipelines. Raises SweepstackError where git does not know a commit.
    """
    top = Path(git(root, "rev-parse", "--show-toplevel")).resolve()
    # -z: between line breaks git quotes a name with a quote, a tab or a backslash, and it would be below no folder.
    changed = set(git(top, "diff", "-z", "--name-only", "--no-renames", base, head).split("\0")) - {""}
    here = {stack: paths_of(top, root, stack) for stack in StackFile.stacks(root)}
    shared = tuple(sorted(_shared(top, root, changed, here.values())))
    folder = _relative(stack_path(root, "x").parent.resolve(), top)
    files = {name for name in changed if PurePosixPath(name).match(f"{folder}/Pulumi.*.yaml")}
    declared = {name for name in changed if PurePosixPath(name).match(f"{folder}/Program.*.yaml")}
    found = []
    for stack, paths in here.items():
        # A job in the project's folder (`workdir: .`) has the files of all stacks below it, and they are no code.
        others = sorted(name for name in (files | declared) - {*paths[:2]} if any(_below(name, path) for path in paths))
        own = any(_below(name, path) for name in changed - set(others) for path in paths)
        if own or shared:
            found.append(Touched(stack, (*paths, *shared, *(f":(exclude){name}" for name in others)), shared=not own))
    for name in files:
        if not (top / name).exists():
            found.append(Touched(stack_name(Path(name)), (name,), removed=True))
    return sorted(found, key=lambda one: one.stack)


def _shared(top: Path, root: Path, changed: set[str], stacks: Iterable[tuple[str, ...]]) -> set[str]:
    """Those of the changed files that all stacks share. A module below the folder of a job is that job's, unless the
    program lies there, too."""
    main = read_document(root / "Pulumi.yaml", "Pulumi.yaml").data.get("main")
    start = Path(os.path.normpath(root / main)) if isinstance(main, str) else root
    program = _relative(start if start.is_dir() else start.parent, top)
    project = _relative(root, top)
    jobs = {path for paths in stacks for path in paths[2:] if not _below(program, path)}

    def is_shared(name: str) -> bool:
        if _PIPELINES.fullmatch(name) or (
            _below(name, project) and _PROJECT.fullmatch(str(PurePosixPath(name).relative_to(project)))
        ):
            return True
        return name.endswith(".py") and _below(name, program) and not any(_below(name, job) for job in jobs)

    return set(filter(is_shared, changed))


def paths_of(top: Path, root: Path, stack: str) -> tuple[str, ...]:
    """What of the repository makes a stack: its file, what its program declares, and the folder of its job where that
    lies in the repository."""
    file = StackFile.locate(root, stack)
    paths = [file.path.resolve(), declared_path(file.path.resolve())]
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


def superseded(root: Path, branch: str, stack: str) -> bool:
    """Whether a newer commit of the remote's branch touches this stack. Asks the remote as `newest`, and raises so."""
    return any(one.stack == stack for one in touched(root, "HEAD", newest(root, branch)))


def newer(root: Path, branch: str) -> list[str]:
    """The commits of the remote's branch after HEAD, newest first, without those that a merge brought along. Asks the
    remote as `newest`, and raises so."""
    return git(root, "rev-list", "--first-parent", f"HEAD..{newest(root, branch)}").split()


def newest(root: Path, branch: str) -> str:
    """The commit of the remote's branch by now. Asks the remote.

    A private repository's remote refuses a clone that keeps no credentials: then what was last fetched counts, and a
    step with the token does that just before. Raises SweepstackError where nothing was ever fetched.
    """
    try:
        git(root, "fetch", "--quiet", "origin", branch)
        return git(root, "rev-parse", "FETCH_HEAD")
    except SweepstackError:
        return git(root, "rev-parse", "--verify", f"refs/remotes/origin/{branch}")


def _relative(path: Path, top: Path) -> str:
    """Relative to the repository's root; what lies outside of it holds none of its files."""
    return path.relative_to(top).as_posix() if path.is_relative_to(top) else str(path)


def _below(name: str, path: str) -> bool:
    return name == path or name.startswith(f"{path}/") or path == "."
