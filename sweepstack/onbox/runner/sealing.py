"""Seals a cell's files: copies them to the durable tier, reads them back, writes a manifest."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sweepstack.onbox.common.aside import set_aside
from sweepstack.onbox.common.canonical import canonical_json, digest_of_bytes, file_sha256, fsync_directory
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.units import spell_bytes
from sweepstack.onbox.runner.names import fold, original, plain
from sweepstack.onbox.runner.records import now

MANIFEST, LOG = "manifest.json", "log.txt"
TAKEN = {LOG: "log.out.txt", MANIFEST: "manifest.out.json"}
"""Our own names in a sealed folder → the name that a job's file of that name gets there."""
CHUNK = 1 << 20
MOST_LISTED, MOST_CHARS = 8, 60
"""How many files a failure names that are there, and of how long a name so much."""
DOUBTED = 2
"""The schema of a manifest that has `doubts`."""


class CellFailure(SweepstackError):
    """The attempt failed, such as when it did not write its artifacts. The message is the reason."""


class FilesFailure(CellFailure):
    """The files that the attempt left are at fault, by themselves: to train again as it is would leave the same."""


class Source(NamedTuple):
    """A file to seal: its path here, its path in the sealed folder, its role."""

    file: Path
    path: str
    role: str


def seal(
    cells: Path,
    out: Path,
    log: Path,
    spec: dict[str, Any],
    facts: dict[str, Any],
    flush: Callable[[str, int, Path], None] = lambda *_: None,
    since: int = 0,
    before: Callable[[], object] = bool,
    still: Callable[[], object] = bool,
    doubts: Sequence[str] = (),
) -> tuple[str, int]:
    """Seals one attempt as `cells/<cell>/`. Returns the manifest's digest and the bytes of its files. Blocks.

    `facts`: the manifest without its files and `sealed_at`. `flush`: returns when the whole folder has reached the
    bucket, if there is one. `since`: an artifact that was last changed before (ctime, ns) is of an earlier attempt.
    `before`: called just before the folder gets its final name, and `still` once that name is free: what they raise
    leaves the folder without it. Where another made a folder of that name since, that one stays, and OSError is raised.
    `doubts`: sentences; with any, the cell is `suspect` until a person has looked.
    Raises CellFailure, and OSError when the durable tier can't
    be written; under the final name there is then what was there before. Killed at any moment, it leaves no wrong file
    under the final name.
    """
    cell, attempt = facts["cell"], facts["attempt"]
    sources, names = collect(out, log, spec["artifacts"], spec.get("metrics"), since)
    partial = cells / f"{cell}.partial-{attempt}"
    set_aside(partial, cells / f"{cell}.superseded")  # an earlier runner's: it may be the last copy
    partial.mkdir()
    try:
        files: list[dict[str, Any]] = []
        for source in sources:
            target = partial / source.path
            target.parent.mkdir(parents=True, exist_ok=True)
            size, sha256 = copy(source.file, target)
            files.append({"path": source.path, "size": size, "sha256": sha256, "role": source.role})
        for file in files:  # after all were written: the first fsync writes most of the others, too
            flush_and_forget(partial / file["path"])
        for file in files:
            if file_sha256(partial / file["path"]) != file["sha256"]:
                raise CellFailure(f"{file['path']} reads back differently from the durable tier; it was not sealed")
        more: dict[str, Any] = {"names": names} if names else {}
        if doubts:  # a version that does not know them has to refuse the manifest: so it is of a schema of its own
            more.update(schema=DOUBTED, doubts=list(doubts))
        manifest = canonical_json(dict(facts, files=files, sealed_at=now(), **more))
        (partial / MANIFEST).write_bytes(manifest + b"\n")
        flush_and_forget(partial / MANIFEST)
        if (partial / MANIFEST).read_bytes() != manifest + b"\n":
            raise CellFailure("the manifest reads back differently from the durable tier; it was not sealed")
        for folder, _, _ in os.walk(partial):
            fsync_directory(Path(folder))
        flush(cell, attempt, partial)
        before()
        publish(partial, cells / cell, still)
    except (CellFailure, OSError):
        shutil.rmtree(partial, ignore_errors=True)  # only a copy: the originals are still in out/
        raise
    for earlier in range(1, attempt):
        shutil.rmtree(cells / f"{cell}.partial-{earlier}", ignore_errors=True)
    return digest_of_bytes(manifest), sum(int(str(file["size"])) for file in files)


def sealed_manifest(cells: Path, identity: str, cell: str, config_digest: str, retry: int) -> tuple[str, int] | None:
    """A sealed cell's manifest: its digest and its `retry`. None unless it has this config, all its files are there,
    and no person has asked to run the cell again since (`retry`).

    Compares sizes only: `verify` compares the digests.
    """
    folder = cells / cell
    try:
        data = (folder / MANIFEST).read_bytes()
        manifest = json.loads(data)
        found = int(manifest.get("retry", 0))
        if (manifest["identity"], manifest["cell"], manifest["config_digest"]) != (identity, cell, config_digest):
            return None
        for file in manifest["files"]:
            status = os.lstat(folder / file["path"])
            if not stat.S_ISREG(status.st_mode) or status.st_size != file["size"]:
                return None
        if not manifest["code"] or found < retry:
            return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    body = data[:-1] if data.endswith(b"\n") else data
    return digest_of_bytes(body), found


def collect(
    out: Path, log: Path, artifacts: list[dict[str, Any]], metrics: dict[str, Any] | None, since: int = 0
) -> tuple[list[Source], dict[str, str]]:
    """The files to seal, by path; and those that are sealed under another name: that name → their own.

    Raises FilesFailure with all problems, and CellFailure where {out} can't be read just now. A file's name is no
    problem: it gets another one if needed.
    """
    problems, found, names = [], {}, {}
    taken = {fold(LOG), fold(MANIFEST)}
    asked = {artifact["path"] for artifact in artifacts} | ({metrics["file"]} if metrics else set())
    try:
        # Artifacts that the job names keep their names.
        for path, status in sorted(walk(out), key=lambda one: (one[0] not in asked, one[0])):
            if stat.S_ISLNK(status.st_mode):
                problems.append(f"{path!r} is a link; write a real file")
            elif not stat.S_ISREG(status.st_mode):
                problems.append(f"{path!r} is no regular file")
            else:
                ours = next((ours for name, ours in TAKEN.items() if fold(path) == fold(name)), "")
                named = plain(ours or path, taken)
                if named != (ours or path):
                    names[named] = original(path)
                found[named] = out / path, status
                taken.add(fold(named))
    except OSError as error:
        away = error.errno in (None, errno.ENOENT, errno.ENOTDIR)  # by the job
        raise (FilesFailure if away else CellFailure)(f"{{out}} can't be read: {error}") from error
    lacking = [artifact["path"] for artifact in artifacts if artifact["path"] not in found]
    missing = [f"{path} (a folder)" if os.path.isdir(out / path) else path for path in lacking]
    if missing:
        there = listed({path: status.st_size for path, (_, status) in found.items()})
        problems.insert(0, f"artifact missing: {', '.join(missing)}; {there}")
    for artifact in artifacts:
        if artifact["path"] not in found:
            continue
        status, least = found[artifact["path"]][1], max(1, artifact.get("min_bytes", 1))
        if status.st_size == 0:
            problems.append(f"artifact empty: {artifact['path']}")
        elif status.st_size < least:
            problems.append(f"artifact too small: {artifact['path']} has {status.st_size} bytes, {least} are the least")
        elif max(status.st_ctime_ns, status.st_mtime_ns) < since:
            problems.append(f"artifact of an earlier attempt: {artifact['path']} was not written by this one")
    if problems:
        raise FilesFailure("; ".join(problems))
    roles = {artifact["path"]: "artifact" for artifact in artifacts}
    if metrics:
        roles.setdefault(metrics["file"], "metrics")
    sources = [Source(file, path, roles.get(path, "extra")) for path, (file, _) in found.items()]
    return sorted([*sources, Source(log, LOG, "log")], key=lambda source: source.path), names


def listed(sizes: Mapping[str, int]) -> str:
    """What is in {out} instead, for people: some names with their sizes, so that a wrong name is seen at once."""
    named = [f"{path[:MOST_CHARS]} ({spell_bytes(sizes[path])})" for path in sorted(sizes)[:MOST_LISTED]]
    more = f" and {len(sizes) - len(named)} more" if len(sizes) > len(named) else ""
    return f"there are: {', '.join(named)}{more}" if named else "{out} is empty"


def walk(folder: Path, below: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """All entries below a folder except folders, with paths relative to the first folder. Follows no links."""
    if not below and not stat.S_ISDIR(os.lstat(folder).st_mode):
        raise OSError(f"{folder} is no folder any more")
    with os.scandir(folder) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                yield from walk(folder / entry.name, f"{below}{entry.name}/")
            else:
                yield below + entry.name, status


def copy(source: Path, target: Path) -> tuple[int, str]:
    """Copies a regular file to a new one: size and SHA-256 of what was read. Raises CellFailure if it changed."""
    hashed, size = hashlib.sha256(), 0
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(source, flags), "rb", buffering=0) as reader, open(target, "xb") as writer:
        before = os.fstat(reader.fileno())
        if not stat.S_ISREG(before.st_mode):
            raise CellFailure(f"{source.name!r} is no regular file")
        while size <= before.st_size:  # not further: a process may append faster than this copies
            chunk = reader.read(CHUNK)
            if not chunk:
                break
            hashed.update(chunk)
            writer.write(chunk)
            size += len(chunk)
        after = os.fstat(reader.fileno())
    if (size, before.st_size, before.st_mtime_ns) != (after.st_size, after.st_size, after.st_mtime_ns):
        raise CellFailure(f"{source.name!r} changed while it was being sealed: something still writes to it")
    return size, hashed.hexdigest()


def flush_and_forget(path: Path) -> None:
    """fsyncs the file and drops it from the page cache if the system can, so that it is read back from the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def publish(partial: Path, final: Path, still: Callable[[], object] = bool) -> None:
    """Renames a checked copy to its final name. A folder that was there, sealed for another config, is kept under
    another name; when `still`, which is called before the last step, raises, it gets its name back."""
    aside = set_aside(final)
    try:
        still()
    except BaseException:
        if aside is not None:
            with contextlib.suppress(OSError):
                os.rename(aside, final)  # which fails where a later one is there
        raise
    os.rename(partial, final)
    fsync_directory(final.parent)
