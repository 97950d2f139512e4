"""Runs real commands until they end, or types them on a terminal; checks the words of refusals."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.screens import Screen

ROOT = Path(__file__).resolve().parents[2]
COMMAND_SECONDS = 300.0
"""A deadline, never a measure: on a busy machine everything takes ten times as long."""
NEVER_SHOWN = ("Traceback (most recent call last)", "internal error in sweepstack", "panic:", "exited prematurely")


@dataclass(frozen=True)
class Result:
    """How a command ended, and all that it said."""

    argv: tuple[str, ...]
    rc: int
    out: str
    err: str
    seconds: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "out", Screen(self.out))
        object.__setattr__(self, "err", Screen(self.err))

    @property
    def text(self) -> Screen:
        """Both streams, for looking words up."""
        return Screen(self.out + "\n" + self.err)

    def json(self) -> Any:
        """The JSON document on stdout."""
        return json.loads(self.out)

    def __str__(self) -> str:
        return f"$ {' '.join(self.argv)}\n{self.text}\n→ rc {self.rc} after {self.seconds:.1f} s"


def ok(result: Result) -> Result:
    """`result`, if the command said yes."""
    assert result.rc == 0, f"expected rc 0\n{result}"
    return result


def assert_refused(result: Result, cells: Sequence[str] = ()) -> None:
    """A refusal: rc ≠ 0, and one message that names the cells, the cost of waiting and a next command."""
    assert result.rc != 0, f"it went through\n{result}"
    text = result.text
    assert "refused" in text.lower(), f"it does not say that it was refused\n{result}"
    for cell in cells:
        assert cell in text, f"{cell} is not named\n{result}"
    assert re.search(r"\$\d+\.\d\d+/h", text), f"it does not say what waiting costs\n{result}"
    assert re.search(r"\bnext\b", text, re.IGNORECASE), f"it names no next command\n{result}"
    assert re.search(r"sweepctl (finish|approve|give-up|wait|verify|status)", text), (
        f"there is no command to type\n{result}"
    )


def engine() -> Path:
    """The engine that set-up found, without the launcher, which puts this checkout's Python before every other."""
    found = re.search(r"""^ENGINE = ['"](.+)['"]$""", (ROOT / ".venv/bin/pulumi").read_text("utf-8"), re.MULTILINE)
    assert found is not None
    return Path(found[1])


def assert_failed(result: Result, *words: str) -> None:
    """It did not go through, and said all of this."""
    assert result.rc != 0, f"it went through\n{result}"
    missing = [word for word in words if word not in result.text]
    assert words, "a failure without a word proves nothing: it may be another one"
    assert not missing, f"not said: {missing}\n{result}"


def start(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> subprocess.Popen[str]:
    """Starts a command in a session of its own; the caller ends it."""
    return subprocess.Popen(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float = COMMAND_SECONDS,
    noisy: bool = False,
) -> Result:
    """Runs a command to its end. A traceback on the way is a failure, whatever the exit code (unless `noisy`)."""
    begin = time.monotonic()
    process = start(argv, cwd=cwd, env=env)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"$ {' '.join(argv)}\nstill running after {timeout:g} s\n{out}\n{err}") from error
    except BaseException:  # Ctrl-C of the tests: the command has a session of its own, and would go on for ever
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise
    result = Result(tuple(argv), process.returncode, out, err, time.monotonic() - begin)
    if not noisy:
        for words in NEVER_SHOWN:
            assert words not in result.text, f"{words!r} was shown\n{result}"
    return result


def on_terminal(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    answers: Sequence[tuple[str, str]] = (),
    columns: int = 160,
    timeout: float = COMMAND_SECONDS,
) -> Result:
    """Runs a command on a terminal and types: each of `answers` is (words to wait for, what to type then)."""
    begin = time.monotonic()
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env={**env, "TERM": "xterm", "COLUMNS": str(columns), "LINES": "60"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen, from_here, left = "", 0, list(answers)
    try:
        while process.poll() is None or select.select([ours], [], [], 0)[0]:
            if time.monotonic() - begin > timeout:
                os.killpg(process.pid, signal.SIGKILL)
                raise AssertionError(f"$ {' '.join(argv)}\nstill running after {timeout:g} s\n{seen}")
            if select.select([ours], [], [], 0.2)[0]:
                try:
                    chunk = os.read(ours, 65536)
                except OSError:  # the other end is closed
                    break
                seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", chunk.decode("utf-8", "replace"))
            if left and (at := seen.find(left[0][0], from_here)) >= 0:
                from_here = at + len(left[0][0])
                time.sleep(0.3)  # a prompt is drawn before it reads
                os.write(ours, left.pop(0)[1].encode())
    finally:
        process.wait()
        os.close(ours)
    assert not left, f"$ {' '.join(argv)}\nnever asked {left[0][0]!r}\n{seen}"
    return Result(tuple(argv), process.returncode, seen, "", time.monotonic() - begin)


def hung_up(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], after: str, timeout: float = COMMAND_SECONDS
) -> Result:
    """Runs a command as the leader of a terminal's session until it has said `after`, and closes the terminal then."""
    begin = time.monotonic()
    pid, ours = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execvpe(argv[0], list(argv), {**env, "TERM": "xterm", "COLUMNS": "80", "LINES": "60"})
    seen = ""
    try:
        while after not in seen:
            assert time.monotonic() - begin < timeout, f"$ {' '.join(argv)}\nnever said {after!r}\n{seen}"
            if select.select([ours], [], [], 0.2)[0]:
                seen += os.read(ours, 65536).decode("utf-8", "replace")
    finally:
        os.close(ours)  # the kernel sends SIGHUP to the session
        os.waitpid(pid, 0)
    return Result(tuple(argv), 0, seen, "", time.monotonic() - begin)
