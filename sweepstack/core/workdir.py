"""What ships to a box: the git-tracked files of the work dir and what the job declares beside them.

A key that travels to a rented machine is a lost key, so files that look like one are refused by name and by content.
"""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import json
import os
import re
import stat
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath

from sweepstack.core import git_source
from sweepstack.onbox.common.canonical import DIGEST_PREFIX, digest_of
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import ConfigError

NO_CODE = DIGEST_PREFIX + 64 * "0"
"""Stands for the digest of files that were not hashed yet, or can't be had here."""
EVIDENCE_MARKER = "sweep.json"
"""Says in a folder whose evidence it holds (`evidence.location.Marker`)."""
KEY_NAMES = (
    *(".env", ".env.*", "*.env", "id_rsa*", "id_ed25519*", "id_ecdsa*", "id_dsa*", "*.pem", "*.key", "*.p12", "*.pfx"),
    *(".netrc", "_netrc", ".git-credentials", ".pypirc", "credentials*", "kaggle.json"),
)
_HARMLESS = ("*.pub", "*.example", "*.sample", "*.template", "*.py", "*.md", "*.rst", "*.ipynb")
_PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY-----")
_LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\n"
_CHUNK = 1 << 20
_OVERLAP = 80
_GIT_SECONDS = 60.0


@dataclass(frozen=True)
class ShippedFile:
    """One file: path relative to the work dir, POSIX; size in bytes; SHA-256 as hex; mode 0o644 or 0o755."""

    path: str
    size: int
    sha256: str
    mode: int


@dataclass(frozen=True)
class Shipment:
    """All files, by path. `digest` covers paths, modes and contents. `left_behind`: untracked files, for a hint."""

    files: tuple[ShippedFile, ...]
    digest: str
    bytes: int
    left_behind: tuple[str, ...] = ()


def located(project_root: Path, workdir: str, progress: Callable[[str], None] = lambda _: None) -> Path:
    """The folder that `job.workdir` is, as a person wrote it: relative to the project, or a git URL's in the cache.

    Blocks while a git URL is asked for and fetched (`core.git_source`). Raises ConfigError; a folder need not exist.
    """
    source = git_source.parse(workdir)
    if source is None:
        return (project_root / Path(workdir).expanduser()).resolve()
    return git_source.fetched(git_source.pinned(source), progress)


def collect(path: Path, include: Sequence[str] = (), own: Iterable[str] = ()) -> Shipment:
    """What would ship from the folder `path` now. Reads every file; writes nothing.

    In a git checkout: tracked files as they lie there, changed or not, and whatever the globs in `include` match.
    Elsewhere: all files but those behind a leading dot, and caches. `own` (`config.project`): how absolute paths
    begin that are the project's own. They and evidence ship only where a glob itself begins so. Raises ConfigError for
    a folder that isn't there or ships nothing, a link that leads out, a name that no box could hold, and anything that
    looks like a key.
    """
    if not path.is_dir():
        raise ConfigError(f"job.workdir: {path} is not a folder")
    tracked, left_behind = _git_files(path) or (_plain_files(path), [])
    found = set(tracked) | _declared(path, include)
    mine = no_code(path, own, (*found, *left_behind))
    names = {name for name in found if not name.startswith(mine)}
    names |= _declared(path, [pattern for pattern in include if pattern.startswith(mine)])
    problems: list[str] = []
    files = [file for name in sorted(names) if (file := _inspect(path, name, problems)) is not None]
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise ConfigError(f"job.workdir: {path} can't be shipped; nothing was rented\n\n{listed}", problems)
    if not files:
        hint = " It is in a git checkout and none of its files is tracked: git add them" if left_behind else ""
        raise ConfigError(f"job.workdir: nothing to ship from {path}.{hint}")
    shipped = {file.path for file in files}
    return Shipment(
        tuple(files),
        digest_of_files((file.path, file.mode, file.sha256) for file in files),
        sum(file.size for file in files),
        tuple(name for name in left_behind if name not in shipped and not name.startswith(mine)),
    )


def digest_of_files(files: Iterable[tuple[str, int, str]]) -> str:
    """The digest of a version of the code: path, mode and SHA-256 as hex of each file."""
    return digest_of([list(file) for file in sorted(files)])


def no_code(path: Path, own: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """How those of `names`, relative to the folder `path`, begin that are no code of a job: what `own` says of absolute
    paths, and folders that hold a sweep's evidence."""
    top = f"{path.resolve()}/"
    mine = [begins.removeprefix(top) for begins in own if begins.startswith(top) and begins != top]
    folders = {parent for name in names for parent in PurePosixPath(name).parents} - {PurePosixPath(".")}
    return (*mine, *(f"{folder}/" for folder in sorted(folders) if _holds_evidence(path / folder)))


def _holds_evidence(folder: Path) -> bool:
    try:
        marker = json.loads((folder / EVIDENCE_MARKER).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(marker, dict) and {"identity", "project", "stack"} <= marker.keys()


def _git_files(path: Path) -> tuple[list[str], list[str]] | None:
    """(tracked, untracked and not ignored); None outside any checkout. A git that fails is an error, not "outside"."""
    if not _in_checkout(path):
        return None
    tracked = _git(path, "ls-files", "-z", "--cached", "--recurse-submodules")
    untracked = _git(path, "ls-files", "-z", "--others", "--exclude-standard")
    return tracked, untracked


def ignored(path: Path) -> list[str]:
    """What git ignores below `path`, a folder whole and with a slash behind it; empty outside any checkout. Raises
    ConfigError where git fails."""
    if not _in_checkout(path):
        return []
    return _git(path, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")


def _in_checkout(path: Path) -> bool:
    resolved = path.resolve()
    return any((folder / ".git").exists() for folder in (resolved, *resolved.parents))


def _git(path: Path, *arguments: str) -> list[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(path), *arguments], capture_output=True, env=env, timeout=_GIT_SECONDS, check=False
        )
    except FileNotFoundError:
        raise ConfigError(f"job.workdir: {path} is a git checkout, and git is not on PATH") from None
    except subprocess.TimeoutExpired:
        raise ConfigError(f"job.workdir: git took more than {_GIT_SECONDS:.0f} s to list {path}") from None
    if done.returncode != 0:
        raise ConfigError(f"job.workdir: git can't list {path}: {done.stderr.decode('utf-8', 'replace').strip()}")
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def _plain_files(path: Path) -> list[str]:
    found = []
    for folder, subfolders, names in os.walk(path):
        subfolders[:] = [name for name in subfolders if not name.startswith(".") and name != "__pycache__"]
        relative = Path(folder).relative_to(path)
        found += [(relative / name).as_posix() for name in names if not name.startswith(".")]
    return found


def _declared(path: Path, include: Iterable[str]) -> set[str]:
    """Files that the globs match; a folder stands for all that is in it. A glob without a match is a mistake."""
    found: set[str] = set()
    for pattern in include:
        if os.path.isabs(pattern) or ".." in Path(pattern).parts:
            raise ConfigError(f"job.include: {pattern!r} leads out of the work dir")
        matches = glob.glob(pattern, root_dir=path, recursive=True, include_hidden=True)
        files = {Path(match).as_posix() for match in matches if not (path / match).is_dir()}
        for match in matches:
            if (path / match).is_dir() and not (path / match).is_symlink():
                files |= {(Path(match) / name).as_posix() for name in _plain_files(path / match)}
        if not files:
            raise ConfigError(f"job.include: {pattern!r} matches no file in {path}")
        found |= files
    return found


def _inspect(root: Path, name: str, problems: list[str]) -> ShippedFile | None:
    """One file, hashed; None when it was deleted here, or when it is a problem."""
    if "\n" in name or not _is_utf8(name):
        problems.append(f"{name!r}: the name has a line break or is not UTF-8; rename it")
        return None
    file = root / name
    if looks_like_a_key(name):
        problems.append(f"{name}: looks like a key, and keys never ship; untrack it (git rm --cached), or rename it")
        return None
    try:
        if file.is_symlink() and not file.resolve(strict=True).is_relative_to(root.resolve()):
            problems.append(f"{name}: is a link that leads out of the work dir; put the file itself there")
            return None
        info = file.stat()
        if stat.S_ISDIR(info.st_mode):
            problems.append(f"{name}: is a link to a folder, or an empty submodule; name its files in job.include")
            return None
        if not stat.S_ISREG(info.st_mode):
            problems.append(f"{name}: is neither a file nor a folder")
            return None
        digest, size, has_key, is_pointer = _read(file)
    except FileNotFoundError:
        if file.is_symlink():
            problems.append(f"{name}: is a link to nothing")
        return None
    except OSError as error:
        problems.append(f"{name}: can't be read: {error.strerror}")
        return None
    if has_key:
        problems.append(f"{name}: holds a PRIVATE KEY, and keys never ship; untrack it (git rm --cached)")
        return None
    if is_pointer:
        problems.append(f"{name}: is a pointer of Git LFS and not the file: git lfs install && git lfs pull")
        return None
    return ShippedFile(name, size, digest, 0o755 if info.st_mode & stat.S_IXUSR else 0o644)


def looks_like_a_key(name: str) -> bool:
    """By its last path component: `.env`, `id_rsa`, `*.pem` and their like; public halves and examples pass."""
    last = name.rsplit("/", 1)[-1].lower()
    if any(fnmatch.fnmatchcase(last, pattern) for pattern in _HARMLESS):
        return False
    return any(fnmatch.fnmatchcase(last, pattern) for pattern in KEY_NAMES)


def _read(file: Path) -> tuple[str, int, bool, bool]:
    """SHA-256 as hex, size, whether a private key is in it, whether it only stands for a file: one pass."""
    hasher, size, tail, has_key, is_pointer = hashlib.sha256(), 0, b"", False, False
    with file.open("rb") as handle:
        while chunk := handle.read(_CHUNK):
            is_pointer = is_pointer or (not size and len(chunk) < 1024 and chunk.startswith(_LFS_POINTER))
            hasher.update(chunk)
            size += len(chunk)
            has_key = has_key or _PRIVATE_KEY.search(tail + chunk) is not None
            tail = chunk[-_OVERLAP:]
    return hasher.hexdigest(), size, has_key, is_pointer


def _is_utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
