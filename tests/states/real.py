"""The same sweep on the real engine, with a person at the terminal of `sweepctl`."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.engine.commands import COMMAND_SECONDS, NEVER_SHOWN, Result
from tests.states.world import StillRunning, World

ASKED = re.compile(r"(?:counts|[Tt]ype [^\n]*?)(?: \(([^()\n]+)\))?: *$")


class Real(World):
    """See the module. stdin is a terminal; what is said goes into pipes, so that no line is cut or redrawn."""

    def run(self, *argv: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, **how: Any) -> Result:
        command, more = self.there(argv)
        env = {**self.env, **(env or {}), **more}
        begin = time.monotonic()
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            command,
            cwd=cwd or self.project,
            env=env,
            stdin=theirs if argv[0] == "sweepctl" else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        os.close(theirs)
        said = {"out": "", "err": ""}

        def listen(name: str, stream: Any) -> None:
            while data := os.read(stream.fileno(), 65536):
                said[name] += data.decode("utf-8", "replace")
                if name == "err" and (asked := ASKED.search(said["err"])):
                    time.sleep(0.3)  # what is typed before the question is thrown away
                    os.write(ours, ((asked[1] or "yes") + "\n").encode())
                    said[name] += "\n"  # as the terminal echoes it: what is said next begins a line

        streams = {"out": process.stdout, "err": process.stderr}
        threads = [threading.Thread(target=listen, args=pair, daemon=True) for pair in streams.items()]
        for thread in threads:
            thread.start()
        try:
            process.wait(COMMAND_SECONDS)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise StillRunning(f"$ {' '.join(argv)}\nstill running after {COMMAND_SECONDS:g} s\n{said}") from None
            raise
        finally:
            for thread in threads:
                thread.join(5)
            os.close(ours)
        result = Result(argv, process.returncode, said["out"], said["err"], time.monotonic() - begin)
        for words in NEVER_SHOWN:
            assert words not in result.text, f"{words!r} was shown\n{result}"
        return result
