"""Runs the user's own check of a file, and reads the one line that is its answer.

It runs in a copy of the job's work dir, with the limits of every reader and nothing of our environment. An exit code is
no evidence: only a last line of JSON on stdout, `{"ok": true}` or `{"ok": false, "reason": "…"}`, is an answer, and a
yes needs exit code 0 beside it. Without an answer nothing is known of the file.
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sweepstack.core.printable import printable
from sweepstack.core.signals import signal_name
from sweepstack.loaders import confine
from sweepstack.loaders.base import FILE, Content, Folder, NoAnswer, OpenFile, Unreadable
from sweepstack.loaders.scan import Region, Scan
from sweepstack.onbox.common.dataclass import dataclass

CODE = "code"
"""The folder of the work dir's copy below a check's root."""
MEMORY = 16 << 30
TIMES = 4
"""Address space of a check: these bytes, and this many times the file's size. torch alone maps 5 GB."""
SAID = 64 << 10
"""Bytes from the end of its output that are looked at."""


@dataclass(frozen=True)
class Check:
    """What a command needs to run here: `root` holds `code/` and its temporary folders; `seconds` is its deadline."""

    root: str
    seconds: float


class CommandFile:
    """A file, or a folder, that a command judges. Raises NoAnswer when it may not or can't be run here."""

    def __init__(self, file: OpenFile | Folder, run: str | None, trust: bool, check: Check | None) -> None:
        if not run or not trust:
            raise NoAnswer(
                "is to be judged by a command that the stack file does not trust: it needs run and trust: true"
            )
        if check is None:
            raise NoAnswer("is to be judged by a command, and its code is not here")
        self.file, self.check = file, check
        self.run = FILE.sub(lambda _: shlex.quote(os.path.abspath(file.path)), run)
        self.regions: Sequence[Region] = ()

    def content(self, scanned: Scan) -> Content:
        """Runs it, after the file's digest was met. Raises Unreadable for its no, NoAnswer when it gave none."""
        try:
            home = Path(tempfile.mkdtemp(prefix="check-", dir=self.check.root))
            try:
                return self._judge(home)
            finally:
                shutil.rmtree(home, ignore_errors=True)
        except (OSError, subprocess.SubprocessError) as error:  # no room, no process, no work dir: the file may be fine
            why = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
            raise NoAnswer(f"its check can't be run here: {why}") from error

    def _judge(self, home: Path) -> Content:
        said, complained = home / "stdout", home / "stderr"
        with said.open("wb") as stdout, complained.open("wb") as stderr:
            process = subprocess.Popen(
                ["/bin/sh", "-c", self.run],
                cwd=os.path.join(self.check.root, CODE),
                env=environment(home),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                preexec_fn=self._confine,
            )
        try:
            code = process.wait(self.check.seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise NoAnswer(f"its check did not end within {self.check.seconds:,.0f} s") from None
        if code < 0 or code in (128 + signal.SIGKILL, 128 + signal.SIGXCPU):
            number = -code if code < 0 else code - 128
            raise NoAnswer(f"its check was killed ({signal_name(number)}): out of memory or time?")
        return _answer(_last_line(said), code, _last_line(complained))

    def _confine(self) -> None:
        confine.die_with_parent()
        memory = MEMORY + TIMES * self.file.size
        confine.limit(resource.RLIMIT_AS, memory, memory)
        confine.limit(resource.RLIMIT_FSIZE, confine.LARGEST_WRITE, confine.LARGEST_WRITE)
        seconds = int(self.check.seconds) + 2
        confine.limit(resource.RLIMIT_CPU, seconds, seconds)
        confine.limit(resource.RLIMIT_CORE, 0, 0)


def environment(home: Path) -> dict[str, str]:
    """All that a check sees of ours: where programs lie (ours last), the language, one thread; and an empty home."""
    kept = {name: text for name, text in os.environ.items() if name == "LANG" or name.endswith("_NUM_THREADS")}
    return {
        **kept,
        "PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)]),
        "HOME": str(home),
        "TMPDIR": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _answer(line: str, code: int, complaint: str) -> Content:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or not isinstance(said.get("ok"), bool):
        last = f": {printable(complaint, 160)}" if complaint else ""
        raise NoAnswer(f'its check ended with code {code} and without a last line such as {{"ok": true}}{last}')
    if not said["ok"]:
        why = said.get("reason")
        words = printable(why, 160) if isinstance(why, str) and why.strip() else "it gave no reason"
        raise Unreadable(f"is refused by its check: {words}")
    if code != 0:
        raise NoAnswer(f"its check said ok and ended with code {code}")
    note = said.get("note")
    return Content(notes=[printable(note, 160)] if isinstance(note, str) and note.strip() else [])


def _last_line(path: Path) -> str:
    with path.open("rb") as handle:
        handle.seek(max(0, handle.seek(0, os.SEEK_END) - SAID))
        lines = [line for line in handle.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
