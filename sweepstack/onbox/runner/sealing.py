"""Seals a cell's files: copies them to the durable tier, reads them back, writes a manifest.

What lies below a cell's folder is opened without following a link (`Own`): one that comes in between leads nowhere.

The names of sealed files work on every store and file system, whatever its case rules. A part of a path with characters
that some store can't hold (a tab, a line break, a backslash, bytes that are no UTF-8), or that differs from another
file's name only by case, is sealed as `%_` and its bytes, special ones as `%09`; a path too long for that as `%_` and
its SHA-256. `unquote_to_bytes(part[2:])` gives a part back; the manifest's `names` has all: sealed -> as written,
percent-encoded.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote_from_bytes

from sweepstack.onbox.common import groups, holes
from sweepstack.onbox.common.aside import set_aside
from sweepstack.onbox.common.canonical import canonical_json, digest_of_bytes, file_sha256, fsync_directory, sha256_hex
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.units import spell_bytes
from sweepstack.onbox.runner.records import now

MANIFEST, LOG = "manifest.json", "log.txt"
TAKEN = {LOG: "log.out.txt", MANIFEST: "manifest.out.json"}
"""Our own names in a sealed folder → the name that a job's file of that name gets there."""
CHUNK = 1 << 20
MOST_LISTED, MOST_CHARS = 8, 60
"""How many files a failure names that are there, and of how long a name so much."""
DOUBTED = 2
"""The schema of a manifest that has `doubts`."""

KINDS = {stat.S_IFSOCK: "socket", stat.S_IFIFO: "pipe", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}
STARTING = 1_000_000_000
"""Nanoseconds. A process may write before the file that names it is there."""
_FOLDER = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # to open a pipe must not hang


class CellFailure(SweepstackError):
    """The attempt failed, such as when it did not write its artifacts. The message is the reason."""


class FilesFailure(CellFailure):
    """The files that the attempt left are at fault, by themselves: to train again as it is would leave the same."""


class Unread(SweepstackError):
    """A file of `{out}` can't be read. The message is the reason; `by_itself`: the same holds when it is read again."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        self.by_itself = error.errno in (errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENOENT, errno.ENOTDIR)


class Changed(CellFailure):
    """A file changed between its copy and the seal. `paths`: which."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = list(paths)
        named = ", ".join(map(repr, self.paths[:3]))
        super().__init__(f"{named} changed while it was being sealed: something still writes to it")


class Stamp(NamedTuple):
    """What changes when a file is written, or another takes its place."""

    size: int
    mtime_ns: int
    device: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        return cls(status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino)


class Source(NamedTuple):
    """A file to seal: its path here, its path in the sealed folder, its role; the folder below which it is opened, and
    what was seen of it there."""

    file: Path
    path: str
    role: str
    root: Path
    status: os.stat_result


class Collected(NamedTuple):
    """What is sealed of `{out}`. `names`: name in the sealed folder → own name, where these differ. `skipped`: (path,
    what it is) of what is no file and was left out. `doubts`: sentences, for what a person has to look at."""

    sources: list[Source]
    names: dict[str, str]
    skipped: list[tuple[str, str]]
    doubts: list[str]
    members: frozenset[str] = frozenset()
    """The files of artifacts that are several, by their paths in `{out}`."""


class Copied(NamedTuple):
    """What was copied to the tier. `files`: as the manifest has them. `unread`: a sentence for each that can't be read.
    `sparse`: the files with holes, and the bytes that were written of each. `stored`: those of all files."""

    files: list[dict[str, Any]]
    unread: list[str]
    sparse: dict[str, int]
    stored: int


class Sealed(NamedTuple):
    """A sealed attempt: the digest of its manifest, the bytes of its files, and those that they take on the tier."""

    manifest: str
    size: int
    stored: int


def seal(
    cells: Path,
    own: Own,
    log: Path,
    spec: dict[str, Any],
    facts: dict[str, Any],
    flush: Callable[[str, int, Path], None] = lambda *_: None,
    judged: Callable[[], object] = bool,
    before: Callable[[], object] = bool,
    still: Callable[[], object] = bool,
    doubts: Sequence[str] = (),
) -> Sealed:
    """Seals one attempt as `cells/<cell>/`. Blocks while files are copied.

    `own`: what is older than that attempt is of an earlier one. `facts`: the manifest without its files and
    `sealed_at`. `flush`: returns when the whole folder has reached the bucket, if there is one.
    `judged`: called once the files are found to be a result, before they are copied.
    `before`: called just before the folder gets its final name, and `still` once that name is free: what they raise
    leaves the folder without it. Where another made a folder of that name since, that one stays, and OSError is raised.
    `doubts`: sentences; with any, the cell is `suspect` until a person has looked.
    Raises CellFailure (Changed where a file was written meanwhile), and OSError when the durable tier can't be written;
    under the final name there is then what was there before. Killed at any moment, it leaves no wrong file there.
    """
    cell, attempt = facts["cell"], facts["attempt"]
    found = collect(own, log, spec["artifacts"], spec.get("metrics"))
    judged()
    partial = cells / f"{cell}.partial-{attempt}"
    set_aside(partial, cells / f"{cell}.superseded")  # an earlier runner's: it may be the last copy
    partial.mkdir()
    try:
        copied = copy_all(found.sources, partial)
        for file in copied.files:  # after all were written: the first fsync writes most of the others, too
            flush_and_forget(partial / file["path"])
        for file in copied.files:
            if file_sha256(partial / file["path"]) != file["sha256"]:
                raise CellFailure(f"{file['path']} reads back differently from the durable tier; it was not sealed")
        more: dict[str, Any] = {"names": found.names, "skipped": found.skipped, "sparse": copied.sparse}
        more = {key: value for key, value in more.items() if value}
        doubts = [*doubts, *found.doubts, *copied.unread]
        if doubts:  # a version that does not know them has to refuse the manifest: so it is of a schema of its own
            more.update(schema=DOUBTED, doubts=doubts)
        manifest = canonical_json(dict(facts, files=copied.files, sealed_at=now(), **more))
        (partial / MANIFEST).write_bytes(manifest + b"\n")
        flush_and_forget(partial / MANIFEST)
        if (partial / MANIFEST).read_bytes() != manifest + b"\n":
            raise CellFailure("the manifest reads back differently from the durable tier; it was not sealed")
        for folder, _, _ in os.walk(partial):
            fsync_directory(Path(folder))
        flush(cell, attempt, partial)
        must_be_as_collected(found.sources)
        must_be_all(own, spec["artifacts"], found.members)
        before()
        publish(partial, cells / cell, still)
    except (CellFailure, OSError):
        shutil.rmtree(partial, ignore_errors=True)  # only a copy: the originals are still in out/
        raise
    for earlier in range(1, attempt):
        shutil.rmtree(cells / f"{cell}.partial-{earlier}", ignore_errors=True)
    return Sealed(digest_of_bytes(manifest), sum(int(str(file["size"])) for file in copied.files), copied.stored)


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
    return manifest_digest(data), found


def manifest_digest(data: bytes) -> str:
    """The digest of a sealed manifest: without the final newline, as the journal and the evidence have it."""
    return digest_of_bytes(data[:-1] if data.endswith(b"\n") else data)


def collect(own: Own, log: Path, artifacts: list[dict[str, Any]], metrics: dict[str, Any] | None) -> Collected:
    """What to seal of an attempt. A link that means a file of the cell is sealed as that file; what else is no file,
    and no artifact, is left out.

    Raises FilesFailure with all problems of artifacts, and CellFailure where {out} can't be read just now. A file's
    name is no problem: it gets another one if needed.
    """
    roles = {artifact["path"]: "artifact" for artifact in artifacts if not groups.is_group(artifact["path"])}
    if metrics:
        roles.setdefault(metrics["file"], "metrics")
    entries: dict[str, os.stat_result | OSError | None] = {}
    try:
        base = own.base()
        entries.update(walk(base))
        entries.update((path, None) for path in roles if path not in entries and os.path.isfile(base / path))
        if metrics and groups.is_group(metrics["file"]):
            for path in entries:
                if groups.means(metrics["file"], path):
                    roles.setdefault(path, "metrics")
        members = members_of(base, entries, artifacts)
        roles.update(dict.fromkeys(members, "artifact"))
    except OSError as error:
        away = error.errno in (None, errno.ENOENT, errno.ENOTDIR)  # by the job
        raise (FilesFailure if away else CellFailure)(f"{{out}} can't be read: {error}") from error
    look = _Look(own, base)
    for path in sorted(entries, key=lambda path: (path not in roles, path)):  # artifacts keep their names
        look.take(path, entries[path], roles.get(path, "extra"))
    look.judge(artifacts)
    if look.problems:
        raise FilesFailure("; ".join(look.problems + look.doubts))
    sources = [*look.sources.values(), Source(log, LOG, "log", log.parent, os.lstat(log))]
    sources.sort(key=lambda source: source.path)
    return Collected(sources, look.names, sorted(look.skipped), look.doubts, members)


def members_of(base: Path, entries: Mapping[str, Any], artifacts: list[dict[str, Any]]) -> frozenset[str]:
    """The entries of `{out}` that artifacts of several files mean. A link in the place of such a folder is one, and no
    file, unless it leads to another of these folders."""
    patterns = [one["path"] for one in artifacts if groups.is_group(one["path"])]

    def taken(path: str) -> bool:
        return any(groups.unit_of(pattern, path) for pattern in patterns)

    def stands_for_folder(path: str, status: os.stat_result | OSError | None) -> bool:
        if not isinstance(status, os.stat_result) or not stat.S_ISLNK(status.st_mode) or not taken(f"{path}/x"):
            return False
        real, root = Path(os.path.realpath(base / path)), Path(os.path.realpath(base))
        return real.is_dir() and not (_below(real, root) and taken(f"{real.relative_to(root)}/x"))

    return frozenset(path for path, status in entries.items() if taken(path) or stands_for_folder(path, status))


def artifact_files(base: Path, artifacts: list[dict[str, Any]]) -> list[str]:
    """The files below `{out}` that all artifacts mean; of those that are one file the name, there or not."""
    found: frozenset[str] = frozenset()
    if any(groups.is_group(one["path"]) for one in artifacts):
        with contextlib.suppress(OSError):
            found = members_of(base, dict(walk(base)), artifacts)
    return [*(one["path"] for one in artifacts if not groups.is_group(one["path"])), *sorted(found)]


class _Look:
    """A look at the entries of `{out}`, which lies at `base`, one by one. `sources`: by their paths in `{out}`; the
    rest is as in `Collected`. `problems`: of artifacts."""

    def __init__(self, own: Own, base: Path) -> None:
        self._own, self._base = own, base
        self.sources: dict[str, Source] = {}
        self.names: dict[str, str] = {}
        self.skipped: list[tuple[str, str]] = []
        self.doubts: list[str] = []
        self.problems: list[str] = []
        self._taken = {folded_name(LOG), folded_name(MANIFEST)}
        self._no_files: set[str] = set()
        self._linked: set[str] = set()

    def take(self, path: str, status: os.stat_result | OSError | None, role: str) -> None:
        """`status`: as `walk` gives it; None for a file behind a link to a folder."""
        if isinstance(status, OSError):
            self.doubts.append(f"{legible_name(path)} can't be read: {Unread(status)}")
        elif status is None or stat.S_ISLNK(status.st_mode):
            self._take_link(path, role)
        elif stat.S_ISREG(status.st_mode):
            self._seal(path, role, self._base, self._base / path, status)
        else:
            self._leave(path, role, kind_of(status))

    def judge(self, artifacts: list[dict[str, Any]]) -> None:
        """Adds what is wrong with the artifacts, after all was taken."""
        gone = [one["path"] for one in artifacts if not self._has(one["path"])]
        if gone:
            missing = [f"{path} (a folder)" if os.path.isdir(self._base / path) else path for path in gone]
            instead = listed({path: source.status.st_size for path, source in self.sources.items()})
            self.problems.insert(0, f"artifact missing: {', '.join(missing)}; {instead}")
        for artifact in artifacts:
            path, least = artifact["path"], max(1, artifact.get("min_bytes", 1))
            if groups.is_group(path):
                for unit, files in groups.members(path, self.sources).items():
                    self._judge(unit, files, least)
            elif path in self.sources:
                self._judge(path, [path], least)

    def _has(self, artifact: str) -> bool:
        """Whether something was found under this name, be it no file."""
        if not groups.is_group(artifact):
            return artifact in self.sources.keys() | self._no_files
        no_files = (*self._no_files, *(f"{path}/x" for path in self._no_files))  # a link in the place of a folder
        return any(groups.unit_of(artifact, path) for path in (*self.sources, *no_files))

    def _judge(self, path: str, files: list[str], least: int) -> None:
        """Adds what is wrong with one file or one folder, `path`."""
        size = sum(self.sources[file].status.st_size for file in files)
        if size == 0:
            self.problems.append(f"artifact empty: {path}")
        elif size < least:
            self.problems.append(f"artifact too small: {path} has {size} bytes, {least} are the least")
        for file in files if size >= least else ():
            if file not in self._linked and self._own.is_old(self._base, self.sources[file].status):
                self.problems.append(f"artifact of an earlier attempt: {file} was not written by this one")

    def _take_link(self, path: str, role: str) -> None:
        link = self._base / path
        try:
            said = f"link to {legible_name(os.readlink(link))}"
        except OSError:  # the link is one of the folders on the way
            said = f"link to {legible_name(os.path.realpath(link))}"
        meant = self._own.meant_by(link)
        if isinstance(meant, str) or (meant.writer and role != "artifact"):
            self._leave(path, role, f"{said} ({meant if isinstance(meant, str) else f'of {meant.writer}'})")
            return
        writer, status = meant.writer, meant.status
        if not writer and self._own.is_old(meant.root, status):
            writer = self._own.earlier(status)
        if role == "artifact" and writer:
            self.doubts.append(f"{path} is a {said}, which {writer} wrote: is it the result of this one?")
        self._linked.add(path)
        self._seal(path, role, meant.root, meant.file, status)

    def _leave(self, path: str, role: str, what: str) -> None:
        if role == "artifact":
            self._no_files.add(path)
            self.problems.append(f"artifact {path} is a {what}: it has to be a file of this try, below {{out}}")
        else:
            self.skipped.append((legible_name(path), what))

    def _seal(self, path: str, role: str, root: Path, file: Path, status: os.stat_result) -> None:
        ours = next((ours for name, ours in TAKEN.items() if folded_name(path) == folded_name(name)), "")
        named = plain_name(ours or path, self._taken)
        if named != (ours or path):
            self.names[named] = original_name(path)
        self._taken.add(folded_name(named))
        self.sources[path] = Source(file, named, role, root, status)


def listed(sizes: Mapping[str, int]) -> str:
    """What is in {out} instead, for people: some names with their sizes, so that a wrong name is seen at once."""
    named = [f"{path[:MOST_CHARS]} ({spell_bytes(sizes[path])})" for path in sorted(sizes)[:MOST_LISTED]]
    more = f" and {len(sizes) - len(named)} more" if len(sizes) > len(named) else ""
    return f"there are: {', '.join(named)}{more}" if named else "{out} is empty"


def walk(folder: Path, below: str = "") -> Iterator[tuple[str, os.stat_result | OSError]]:
    """All entries below a folder except folders, with paths relative to the first folder; for one that can't be looked
    at, the error. Follows no links. Raises OSError for the first folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            path = below + entry.name
            try:
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    yield from walk(folder / entry.name, f"{path}/")
                else:
                    yield path, status
            except OSError as error:
                yield path, error


def copy_all(sources: Sequence[Source], partial: Path) -> Copied:
    """Copies all. A file that has several names, of itself or by links, is stored once, where the tier can do that.
    Raises CellFailure, OSError."""
    done = Copied([], [], {}, 0)
    written = 0
    stored: dict[tuple[int, ...], dict[str, Any]] = {}
    for source in sources:
        target, status = partial / source.path, source.status
        target.parent.mkdir(parents=True, exist_ok=True)
        inode = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        known = stored.get(inode)
        if known is None or not linked(partial / known["path"], target):
            try:
                size, sha256, data = copy(source, target)
            except Unread as error:
                if source.role == "log":
                    raise OSError(f"{source.file}: {error}") from error
                if source.role == "artifact":
                    kind = FilesFailure if error.by_itself else CellFailure
                    raise kind(f"artifact {source.path} can't be read: {error}") from error
                target.unlink()
                done.unread.append(f"{source.path} can't be read: {error}")
                continue
            known = stored[inode] = {"path": source.path, "size": size, "sha256": sha256}
            written += data
            if data < size:
                done.sparse[source.path] = data
        done.files.append({**known, "path": source.path, "role": source.role})
    return done._replace(stored=written)


def linked(stored: Path, target: Path) -> bool:
    """Gives a sealed file its second name; False where the tier has no hard links."""
    try:
        os.link(stored, target)
    except OSError:
        return False
    return True


def copy(source: Source, target: Path) -> tuple[int, str, int]:
    """Copies a regular file to a new one: size and SHA-256 of what was read, and how many bytes were written: zeros of
    a sparse file are not. Raises CellFailure if it changed, Unread with an empty or partial copy, OSError where that
    can't be written."""
    hashed, size, data = hashlib.sha256(), 0, 0
    with open(target, "xb") as writer, open_source(source) as reader:
        before = os.fstat(reader.fileno())
        if not stat.S_ISREG(before.st_mode):
            raise CellFailure(f"{source.path!r} is no regular file any more")
        sparse, chunks = holes.is_sparse(before), holes.parts(reader, before)
        while size <= before.st_size:  # not further: a process may append faster than this copies
            try:
                chunk = next(chunks, b"")
            except OSError as error:
                raise Unread(error) from error
            if not chunk:
                break
            hashed.update(chunk)
            data += holes.write(writer, chunk) if sparse else writer.write(chunk)
            size += len(chunk)
        after = os.fstat(reader.fileno())
    if (size, before.st_size, before.st_mtime_ns) != (after.st_size, after.st_size, after.st_mtime_ns):
        raise Changed([source.path])
    return size, hashed.hexdigest(), data


def open_source(source: Source) -> FileIO:
    """Opens it below its folder: one that is a link by now, or lies behind one, is not read. Raises Unread."""
    try:
        return FileIO(open_below(source.root, source.file), "rb")
    except OSError as error:
        raise Unread(error) from error


def must_be_as_collected(sources: Sequence[Source]) -> None:
    """Raises Changed where a file is not any more what was seen before its copy."""
    changed = []
    for source in sources:
        try:
            same = Stamp.of(os.lstat(source.file)) == Stamp.of(source.status)
        except OSError:
            same = False
        if not same:
            changed.append(source.path)
    if changed:
        raise Changed(changed)


def must_be_all(own: Own, artifacts: list[dict[str, Any]], members: frozenset[str]) -> None:
    """Raises Changed where artifacts of several files mean others than `members` by now: a shard that came late."""
    if any(groups.is_group(one["path"]) for one in artifacts):
        base = own.base()
        if changed := members ^ members_of(base, dict(walk(base)), artifacts):
            raise Changed(sorted(changed))


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


NAME_MARK = "%_"
MAX_PATH, MAX_PART = 1024, 255
LOWER = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789._-")


def plain_name(path: str, taken: Collection[str] = ()) -> str:
    """The name under which a file is sealed: `path` itself if possible. `taken`: the folded names of other files."""
    named = legible_name(path)
    if _fits(named) and folded_name(named) not in taken:
        return named
    above, slash, last = named.rpartition("/")
    if folded_name(named) in taken:  # its capitals are written as bytes, which makes it differ
        lower = above + slash + NAME_MARK + "".join(chr(b) if b in LOWER else f"%{b:02X}" for b in os.fsencode(last))
        if _fits(lower) and folded_name(lower) not in taken:
            return lower
    return NAME_MARK + sha256_hex(os.fsencode(path))


def legible_name(path: str) -> str:
    """A path as text that every record can hold: each part as it is if possible, else escaped."""
    return "/".join(part if _is_plain(part) else escaped_name(part) for part in path.split("/"))


def escaped_name(part: str) -> str:
    """One part of a path as plain ASCII, with special bytes as `%09`."""
    return NAME_MARK + quote_from_bytes(os.fsencode(part), safe=" !#$&'()+,;=@[]^{}~`")


def original_name(path: str) -> str:
    """A file's own path in the form of the manifest's `names`: percent-encoded."""
    return quote_from_bytes(os.fsencode(path))


def folded_name(path: str) -> str:
    """A key that is equal for names which some file system takes for the same."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _is_plain(part: str) -> bool:
    try:
        part.encode("utf-8")
    except UnicodeEncodeError:
        return False
    odd = "\\" in part or any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in part)
    return not odd and not part.startswith(NAME_MARK)


def _fits(path: str) -> bool:
    return len(path.encode()) <= MAX_PATH and all(len(part.encode()) <= MAX_PART for part in path.split("/"))


class Meant(NamedTuple):
    """The regular file that a link means: `file`, a path without links, in the cell's folder `root`. `writer`: which
    other try or version that folder is of; "" for this one's own."""

    root: Path
    file: Path
    status: os.stat_result
    writer: str = ""


class Own:
    """The folders of one attempt: its `{out}` (`cells/<cell>/<attempt>/out`), its scratch (`<cell>/<attempt>`), and the
    `{checkpoints}` of its version (`<cell>/<version>`). Those of other attempts and versions lie beside them.

    Links above the cell's folders are followed once, here; a link in the place of one of them leads out of it. `since`:
    when the attempt began (ns), by the clock of the box's own disk and by that of the tier; 0: not known.
    """

    def __init__(self, out: Path, scratch: Path, checkpoints: Path, since: tuple[int, int] = (0, 0)) -> None:
        self.attempts, self.tries, self.versions = (
            Path(os.path.realpath(one.parent)) / one.name
            for one in (out.parent.parent, scratch.parent, checkpoints.parent)
        )
        self.number = out.parent.name
        self.out = self.attempts / self.number / out.name
        self.scratch, self.checkpoints = self.tries / scratch.name, self.versions / checkpoints.name
        self._since = since

    def base(self) -> Path:
        """The folder that `{out}` is: itself, or what a link in its place leads to, in scratch or `{checkpoints}`.
        Raises OSError, without a number where it is none any more."""
        if stat.S_ISDIR(os.lstat(self.out).st_mode):
            return self.out
        real = Path(os.path.realpath(self.out))
        if not self.out.is_symlink() or not real.is_dir():
            raise OSError(f"{self.out} is no folder any more")
        if not any(real == one or _below(real, one) for one in (self.scratch, self.checkpoints)):
            raise OSError(f"{self.out} is no folder any more, but a link to {os.readlink(self.out)}")
        return real

    def meant_by(self, link: Path) -> Meant | str:
        """The regular file of the cell that a link means; else why it means none, as words about its target."""
        try:
            status = os.stat(link)
            real = Path(os.path.realpath(link))
            if stat.S_ISDIR(status.st_mode):
                return "a folder"
            if not stat.S_ISREG(status.st_mode):
                return f"a {kind_of(status)}"
            root, writer = self._root_of(real)
            return "not in a folder of this cell" if root is None else Meant(root, real, os.lstat(real), writer)
        except FileNotFoundError:
            return "nothing is there"
        except OSError as error:
            return f"it can't be read: {error.strerror}"

    def _root_of(self, real: Path) -> tuple[Path | None, str]:
        """The folder of the cell that `real` lies in, and which other try or version has it; "" for this one."""
        for one in (self.out, self.scratch, self.checkpoints):
            if _below(real, one):
                return one, ""
        for folder, below, who in (
            (self.attempts, "out", "try"),
            (self.tries, "", "try"),
            (self.versions, "", "version"),
        ):
            root = folder / real.relative_to(folder).parts[0] / below if _below(real, folder) else folder
            if root != folder and _below(real, root):
                return root, f"{who} {root.relative_to(folder).parts[0]}"
        return None, ""

    def is_old(self, root: Path, status: os.stat_result) -> bool:
        """Whether a file below this folder of the cell was last changed before the attempt began."""
        return max(status.st_ctime_ns, status.st_mtime_ns) < self._since[root == self.checkpoints]

    def earlier(self, status: os.stat_result) -> str:
        """Which attempt wrote a file that is older than this one, if its beginning and the end of its log tell it."""
        for name in os.listdir(self.attempts):
            try:
                began = os.stat(self.attempts / name / "pid").st_ctime_ns - STARTING
                if (
                    name != self.number
                    and began <= status.st_ctime_ns <= os.stat(self.attempts / name / "log.txt").st_ctime_ns
                ):
                    return f"try {name}"
            except OSError:
                continue
        return "an earlier try"


def time_at(folder: Path) -> int:
    """The time now (ns) by the clock of a folder's file system; 0 where it does not tell."""
    try:
        os.utime(folder)
        return os.stat(folder).st_ctime_ns
    except OSError:
        return 0


def open_below(root: Path, file: Path) -> int:
    """A descriptor of `file`, opened folder by folder from `root` on. Raises OSError, also where `root`, one of them,
    or the file itself is a link by now."""
    *folders, name = file.relative_to(root).parts
    at = os.open(root, _FOLDER)
    try:
        for folder in folders:
            inner = os.open(folder, _FOLDER, dir_fd=at)
            os.close(at)
            at = inner
        return os.open(name, _FILE, dir_fd=at)
    finally:
        os.close(at)


def kind_of(status: os.stat_result) -> str:
    """What is neither file, folder nor link, in a word."""
    return KINDS.get(stat.S_IFMT(status.st_mode), "special file")


def _below(path: Path, folder: Path) -> bool:
    return folder in path.parents
