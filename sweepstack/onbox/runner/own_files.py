"""Tells what a link in a cell's folders means, and opens files there.

What lies below a folder is opened without following a link: one that comes in between leads nowhere.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

KINDS = {stat.S_IFSOCK: "socket", stat.S_IFIFO: "pipe", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}
STARTING = 1_000_000_000
"""Nanoseconds. A process may write before the file that names it is there."""
_FOLDER = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # to open a pipe must not hang


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
