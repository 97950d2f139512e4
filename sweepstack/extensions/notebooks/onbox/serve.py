"""Runs Jupyter on a box until stdin ends; the token comes over stdin, and goes into a file.

The file has mode 0600. The server listens on loopback alone. Its own files (the one with the token, its log) lie in a
folder that only its user can enter, outside of what is pulled, and that is removed at the end.

Prints one line of JSON: `port` and `app`, or `problem`. This module is sent alone: it imports no other one of ours.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any, Iterator, NoReturn

APPS = ("jupyterlab", "notebook", "jupyter_server")
START_SECONDS, END_SECONDS, LOOK_SECONDS = 90.0, 10.0, 60.0
NONE = (
    "no Python of the job has Jupyter (looked in {}): add jupyterlab to what job.setup installs, or to the image, and "
    "`pulumi up`"
)


def main(argv: list[str]) -> int:
    """`argv`: the folder of the job's environments, then interpreters to ask after those."""
    token = sys.stdin.buffer.readline().strip()
    # A broken connection ends this as its person does.
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, _ended)
    newest = sorted(glob.glob(os.path.join(argv[0], "*", "bin", "python")), key=os.path.getmtime, reverse=True)
    found = find([*newest, *argv[1:]])
    if found is None:
        say(problem=NONE.format(", ".join([*newest, *argv[1:]])))
        return 3
    with contextlib.suppress(KeyboardInterrupt), _folder() as folder:
        return serve(found[0], found[1], folder, token)
    return 0


def _ended(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


def say(**words: Any) -> None:
    """Prints a line of JSON."""
    print(json.dumps(words), flush=True)


def find(pythons: list[str]) -> tuple[str, str] | None:
    """The first interpreter that has a server, and its module: JupyterLab, Notebook, or the bare server."""
    program = "import importlib.util as u, sys; print(next((n for n in sys.argv[1:] if u.find_spec(n)), ''))"
    for python in dict.fromkeys(pythons):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(
                [python, "-c", program, *APPS],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=LOOK_SECONDS,
            )
            app = done.stdout.decode("utf-8", "replace").strip()
            if app in APPS:
                return python, app
    return None


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    """A folder of mode 0700, in memory where there is such a place."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None
    folder = tempfile.mkdtemp(prefix="sweepstack-jupyter-", dir=memory)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def serve(python: str, app: str, folder: str, token: bytes) -> int:
    """Runs it until stdin ends. Exit code: 0, or 4 where it did not come up or ended by itself."""
    file, log = os.path.join(folder, "token"), os.path.join(folder, "log")
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as handle:
        handle.write(token)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER_TOKEN")}
    env.update(JUPYTER_TOKEN_FILE=file, JUPYTER_RUNTIME_DIR=os.path.join(folder, "runtime"))
    env["PATH"] = os.pathsep.join([os.path.dirname(python), env.get("PATH", os.defpath)])
    options = {"ip": "127.0.0.1", "port": port, "port_retries": 0, "open_browser": False, "allow_root": True}
    words = [f"--ServerApp.{name}={value}" for name, value in options.items()]
    with open(log, "wb") as said:
        server = subprocess.Popen(
            [python, "-m", app, *words], env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
        )
    try:
        if not _answers(server, port):
            with open(log, "rb") as handle:
                tail = handle.read()[-2000:].replace(token, b"...").decode("utf-8", "replace").strip()
            say(problem=f"{app} did not come up within {START_SECONDS:.0f} s: {tail}")
            return 4
        os.unlink(file)  # it was read
        say(port=port, app=app)
        while server.poll() is None:
            if select.select([sys.stdin], [], [], 0.5)[0] and not os.read(0, 4096):
                return 0
        return 4
    finally:
        end(server)


def _answers(server: subprocess.Popen[bytes], port: int) -> bool:
    """Whether it listens before it ends, and before the deadline."""
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return True
        time.sleep(0.1)
    return False


def end(server: subprocess.Popen[bytes]) -> None:
    """Ends the server, which ends its kernels, within `END_SECONDS`; else by force: no kernel outlives its server."""
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        server.terminate()
    try:
        server.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
