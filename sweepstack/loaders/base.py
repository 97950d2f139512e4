"""What all readers share: the question, the answer, and a file opened without following anything."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol

from sweepstack.core.loader_names import Loader
from sweepstack.core.printable import printable
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import SweepstackError

Reader = Literal["restricted", "torch"]
NO_NUMBER = re.compile(
    r"(tensor\()?\s*[-+]?(nan|inf|infinity|nat|none|null|n/a|#(n/a|div/0!|num!|value!))\)?\s*%?", re.I
)
"""A text that programs write where there is no number."""
LONGEST = 160
"""Characters of a name in a reason. A checkpoint of Lightning has names of 150."""
FILE = re.compile(r"(?<!\$)\{file\}")
"""What becomes the file's path in a `load: command`; `${file}` is the shell's."""
Progress = Callable[[int], None]
"""Gets the bytes read since its last call."""


class Spec(Protocol):
    """How a file is proved good; `sweepstack.core.records.ArtifactSpec` is one."""

    @property
    def load(self) -> Loader: ...
    @property
    def keys(self) -> Sequence[str]: ...
    @property
    def finite(self) -> Literal["require", "report"] | tuple[str, ...]: ...
    @property
    def infinite(self) -> Sequence[str]: ...
    @property
    def plausible(self) -> Literal["require", "report"]: ...
    @property
    def min_bytes(self) -> int: ...
    @property
    def run(self) -> str | None: ...
    @property
    def trust(self) -> bool: ...


@dataclass(frozen=True)
class PlainSpec:
    """A Spec that travels to a worker as JSON."""

    load: Loader
    keys: tuple[str, ...] = ()
    finite: Literal["require", "report"] | tuple[str, ...] = "require"
    infinite: tuple[str, ...] = ()
    plausible: Literal["require", "report"] = "report"
    min_bytes: int = 1
    run: str | None = None
    trust: bool = False


@dataclass(frozen=True)
class LoadResult:
    """What reading found.

    `reasons` is empty exactly when `ok`; `notes` are worth a person's look and fail nothing. `bytes`, `sha256` (bare
    hex, empty when the file could not be read) and `mtime_ns` are the file's as read; `stages` are seconds. `unknown`:
    its reader came to no answer (killed, out of memory or time), so that the file is neither good nor proved bad.
    `unsupported`: its reader does not take such a file, now or later: neither good nor proved bad, too.
    `network`: whether the reader could have reached one; None where it did not say.
    """

    ok: bool
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    bytes: int = 0
    sha256: str = ""
    mtime_ns: int = 0
    stages: dict[str, float] = field(default_factory=dict)
    unknown: bool = False
    network: bool | None = None
    unsupported: bool = False


ROW = ("ok", "reasons", "notes", "bytes", "sha256", "mtime_ns", "unknown", "unsupported")
"""The fields of a LoadResult that a worker tells of each file, in this order."""


class Bad(NamedTuple):
    """Numbers that are not finite: `total`, of which `nan` are NaN, and the others infinities."""

    total: int
    nan: int

    def and_more(self, other: Bad) -> Bad:
        """Both together."""
        return Bad(self.total + other.total, self.nan + other.nan) if other.total else self


NONE = Bad(0, 0)


class NonFinite(NamedTuple):
    """Where numbers are not finite. `single`: it is a tensor, and this its only number."""

    name: str
    bad: Bad
    single: bool = False


@dataclass
class Content:
    """What a structure check found in a file, before keys and numbers are judged."""

    names: set[str] = field(default_factory=set)
    nonfinite: list[NonFinite] = field(default_factory=list)
    floats: set[str] = field(default_factory=set)
    """Tensors and arrays of two or more floating-point numbers."""
    constant: set[str] = field(default_factory=set)
    """Those of `floats` in which every number is the same."""
    absent: list[str] = field(default_factory=list)
    """Where a null or a text such as "NaN" stands in place of a number."""
    notes: list[str] = field(default_factory=list)
    tensorless: bool = False
    """A checkpoint without one tensor that has a number in it."""

    def add_floats(self, name: str, *, constant: bool) -> None:
        """Notes a tensor of two or more floating-point numbers."""
        self.floats.add(name)
        if constant:
            self.constant.add(name)


class Unreadable(SweepstackError):
    """The file is not what it should be. The message is the reason, in a few words, without a path or an address."""


class Unsupported(Unreadable):
    """Such a file this reader does not take, which says nothing against it. The message names what would help."""


def beyond(what: str) -> Unsupported:
    """The error for a file that goes beyond a limit of its reader."""
    return Unsupported(f"{what}; judge it by load: command")


class NoAnswer(SweepstackError):
    """Whether the file is good could not be told here. The message is the reason; the file may be fine."""


@dataclass(frozen=True)
class OpenFile:
    """A regular file with one name, open for reading. Sizes in bytes."""

    fd: int
    path: str
    size: int
    mtime_ns: int

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`. Raises Unreadable when the file ends before."""
        parts = []
        while length:
            part = os.pread(self.fd, min(length, 1 << 20), offset)
            if not part:
                raise Unreadable("shrank while it was read")
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return b"".join(parts)

    def begins_with(self, magic: bytes) -> bool:
        """Whether these are its first bytes."""
        return os.pread(self.fd, len(magic), 0) == magic

    def stream(self) -> BinaryIO:
        """For a library, from the beginning on; to be closed. All streams of a file share one position."""
        handle = os.fdopen(os.dup(self.fd), "rb")
        handle.seek(0)
        return handle

    def check_unchanged(self) -> None:
        """Raises Unreadable when the file was written to since it was opened."""
        status = os.fstat(self.fd)
        if (status.st_size, status.st_mtime_ns) != (self.size, self.mtime_ns):
            raise Unreadable("changed while it was read")


@contextmanager
def open_file(path: str) -> Iterator[OpenFile]:
    """Opens `path` without following a link. Raises Unreadable for whatever is not a plain file of its own."""
    try:
        # Not blocking: a pipe under this name must not hang the reader.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise Unreadable("is not there") from None
    except OSError as error:
        if os.path.islink(path):
            raise Unreadable("is a link, not a copy") from None
        raise Unreadable(f"can't be opened: {error.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("is not a regular file")
        if status.st_nlink > 1:
            raise Unreadable("shares its bytes with another name (a hard link), so it is not a copy")
        yield OpenFile(descriptor, path, status.st_size, status.st_mtime_ns)
    finally:
        os.close(descriptor)


@dataclass
class Folder:
    """A folder below which exactly the files `members` are to lie. `size`: of all, in bytes, after `look`."""

    path: str
    members: tuple[str, ...]
    size: int = 0
    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)

    def file(self, member: str) -> str:
        """The path of one of its files."""
        return os.path.join(self.path, member)

    def look(self) -> None:
        """Raises Unreadable where it holds other files, or one that is no plain file of its own."""
        there = {
            os.path.relpath(os.path.join(top, name), self.path)
            for top, folders, names in os.walk(self.path)
            for name in (*names, *(one for one in folders if os.path.islink(os.path.join(top, one))))
        }
        if other := there - {*self.members}:
            raise Unreadable(f"holds {some(sorted(other))}, which was not sealed with it")
        for member in self.members:
            try:
                with open_file(self.file(member)) as opened:
                    self._seen[member] = opened.size, opened.mtime_ns
            except Unreadable as error:
                raise Unreadable(f"{printable(member)} {error}") from None
        self.size = sum(size for size, _ in self._seen.values())

    def size_of(self, member: str) -> int:
        """In bytes, of a file that was looked at."""
        return self._seen[member][0]

    def check_unchanged(self) -> None:
        """Raises Unreadable when a file was written to since it was looked at."""
        for member, seen in self._seen.items():
            with open_file(self.file(member)) as opened:
                if (opened.size, opened.mtime_ns) != seen:
                    raise Unreadable(f"{printable(member)} changed while it was read")


def plural(count: int, word: str) -> str:
    """`1 tensor`, `3 tensors`, `1,000 tensors`."""
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def some(names: Sequence[str], limit: int = 3) -> str:
    """The first names, and how many more there are. Of long ones the middle is left out: the last part of a tensor's
    name tells the most, and names come from a file that is not trusted."""
    shown = ", ".join(_shortened(name) for name in names[:limit])
    return shown + (f" and {len(names) - limit:,} more" if len(names) > limit else "")


def _shortened(name: str) -> str:
    if len(name) <= LONGEST:
        return printable(name, LONGEST)
    half = LONGEST // 2
    return f"{printable(name[:half], half)}…{printable(name[-half:], half)}"


def wrong_crc(parts: Sequence[str]) -> str:
    """The reason when a CRC that stands in the file is not met, and the digest of the file is."""
    return f"was damaged before it was sealed: CRC of {some(parts)} differs"


def dotted(parent: str, key: str) -> str:
    """The name of a part inside another. A long key is cut: names of many parts must not fill the memory."""
    return f"{parent}.{key[:200]}" if parent else key[:200]


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads(…, object_pairs_hook=…)`, which takes the last of two keys of one name. Raises Unreadable."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Unreadable(
            f"names a key twice: {some([key for key, n in Counter(k for k, _ in pairs).items() if n > 1])}"
        )
    return found
