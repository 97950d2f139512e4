"""A sweep whose commands are the real ones, on an engine that is a stand-in: a fifth of a second instead of four."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.engine.commands import NEVER_SHOWN, Result
from tests.states.world import StillRunning, World

SCRIPT = Path(__file__).with_name("stand_in.py")
SECONDS = 90.0


class Fast(World):
    """See the module. Only `pulumi` and `sweepctl` are run; the first one begins the process that forks them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._process: subprocess.Popen[bytes] | None = None

    _OURS = ("_process", "_sock", "_lines")

    def begin(self) -> None:
        """Imports the checkout as it is now: a test that breaks it does so before."""
        self._sock, theirs = socket.socketpair()
        self._sock.settimeout(SECONDS)
        env = {**os.environ, "PYTHONPATH": str(self.checkout), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, str(SCRIPT), str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, cwd=self.base, env=env, pass_fds=[theirs.fileno()], start_new_session=True
        )
        theirs.close()
        assert self._sock.recv(1) == b"!", "the checkout can't be imported"
        self._lines = self._sock.makefile("r", encoding="utf-8")

    def run(self, *argv: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, **how: Any) -> Result:
        if argv[0] not in ("pulumi", "sweepctl"):
            command, more = self.there(argv)
            return super().run(*command, env={**(env or {}), **more}, cwd=cwd, **how)
        if self._process is None:
            self.begin()
        begin = time.monotonic()
        told = {
            "argv": list(argv),
            "env": {**self.env, **(env or {})},
            "cwd": str(cwd or self.project),
            "host": self.host,
            "read_only": [str(path) for path in self.read_only],
        }
        data = json.dumps(told).encode()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            socket.send_fds(self._sock, [len(data).to_bytes(4, "big") + data], [out.fileno(), err.fileno()])
            try:
                answer = json.loads(self._lines.readline())
            except TimeoutError:
                self._end_process()  # its next answer would be of this command
                raise StillRunning(f"$ {' '.join(argv)}\nstill running after {SECONDS:g} s") from None
            said = []
            for stream in (out, err):
                stream.seek(0)
                said.append(stream.read().decode("utf-8", "replace"))
        result = Result(argv, answer["code"], said[0], said[1], time.monotonic() - begin)
        for words in NEVER_SHOWN:
            assert words not in result.text, f"{words!r} was shown\n{result}"
        return result

    def restore(self, moment: str) -> None:
        ours = {name: vars(self).get(name) for name in self._OURS}
        super().restore(moment)
        vars(self).update(ours)

    def end(self) -> None:
        """Ends what runs on its boxes, and the process that forks commands."""
        self.close()
        self._end_process()

    def _end_process(self) -> None:
        if self._process is not None:
            self._sock.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
