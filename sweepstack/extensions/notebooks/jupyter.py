"""`sweepctl ssh BOX --jupyter`: Jupyter on a box, reached through a port here, until Ctrl-C.

The token is made here for this one session. It goes to the box over the stdin of the connection, and to the person in a
file that only they can read and that is removed at the end: it is in no argument of a command, in no output, in no log
and in no evidence. The server ends with this process, whichever way that ends: its stdin is our pipe.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from sweepstack.cli.box_access import find_box, way_to
from sweepstack.cli.commands.ssh import is_port
from sweepstack.cli.output import NO, YES, Out, aside
from sweepstack.cli.progress import Progress
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import No, Unsure
from sweepstack.onbox.host.capabilities import IsCluster
from sweepstack.operations.sweep.target import Target

BEGIN_SECONDS = 180.0
"""For the connection, the look for Jupyter, and its start."""
END_SECONDS = 20.0
ENTRY = "from sweepstack.cli.entry import main; main()"
PROGRAM = Path(__file__).with_name("onbox") / "serve.py"
PAGES = {"jupyterlab": "lab", "notebook": "tree"}


@dataclass(frozen=True)
class Served:
    """A server on a box: the port there, what it is, and the process here whose stdin keeps it."""

    port: int
    app: str
    process: subprocess.Popen[bytes]


def report(target: Target, name: str, port: str | None, out: Out) -> int:
    """Serves until Ctrl-C. `port`: of this machine; None: one that is free. Blocks. Raises No where the box has no
    Jupyter, Unsure where it can't be reached."""
    if port is not None and not is_port(port):
        raise Unsure(f'"{port}" is no port; with --jupyter it is one of this machine, such as 8888')
    box = find_box(target, name)
    channel = way_to(target, box)
    if isinstance(box.context().platform, IsCluster):
        raise No(
            f"box {name} is a cluster's: its cells run in jobs and pods of their own, and a server beside them would "
            f"not have their environment. Start it in one of them, and reach it with `sweepctl ssh {name} --forward`"
        )
    token = secrets.token_urlsafe(32)
    local = isinstance(channel, LocalChannel)
    command = [channel.python, "-c", PROGRAM.read_text("utf-8"), channel.absolute(f"{box_layout.HOME}/envs")]
    with _server(target, name, [*command, channel.python], token) as served:
        here = served.port if local else int(port) if port else _free_port()
        url = f"http://127.0.0.1:{here}/{PAGES.get(served.app, '')}"
        with _way_in(url, token) as file, _watched(served.process) as gone, contextlib.suppress(KeyboardInterrupt):
            _tell(target, name, here, served.app, file, out)
            while local:
                time.sleep(1.0)  # not the wait of an Event, which Ctrl-C can leave with a RuntimeError of its lock
            channel.reach(served.port, here)
    if gone.is_set():
        out.line(f"Jupyter of {name} ended by itself, or the connection broke", style="yellow")
        return NO
    out.line(f"ended: Jupyter of {name}")
    return YES


@contextlib.contextmanager
def _watched(process: subprocess.Popen[bytes]) -> Iterator[threading.Event]:
    """Interrupts this process, as Ctrl-C does, when that one ends first; the event says so."""
    gone, left = threading.Event(), threading.Event()

    def watch() -> None:
        process.wait()
        if not left.is_set():
            gone.set()
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield gone
    finally:
        left.set()


def _tell(target: Target, name: str, here: int, app: str, file: Path, out: Out) -> None:
    opens = f"{'open' if sys.platform == 'darwin' else 'xdg-open'} {file}"
    following = [f"{opens}    (the way in, for you alone; Ctrl-C here ends it)"]
    words = {"stack": target.stack, "box": name, "app": app, "url": f"http://127.0.0.1:{here}/", "file": str(file)}
    out.document({**words, "next": following})
    out.line(f"{app} of {name} is at http://127.0.0.1:{here}/ as long as this command runs")
    aside("a stop or a delete of the box does not wait for it; what you save on the box is in no seal")
    out.next(following)


@contextlib.contextmanager
def _server(target: Target, name: str, command: Sequence[str], token: str) -> Iterator[Served]:
    """A process that runs the server on the box. Its stdin is the leash: the server ends when it closes."""
    words = ["ssh", name, "--stack", target.stack, "--", *command]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-c", ENTRY, *words],
            cwd=target.root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,  # Ctrl-C is for this process, which then ends that one
        )
        try:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(token.encode() + b"\n")
                process.stdin.flush()
            with Progress(f"starting Jupyter on {name}"):
                answer = _first_line(process)
            if "port" not in answer:
                said.seek(0)
                why = answer.get("problem") or said.read()[-2000:].decode("utf-8", "replace").strip()
                raise No(
                    f"box {name}: {why.replace(token, '...') or 'it said nothing'}",
                    [f"sweepctl ssh --stack {target.stack} {name}    (a shell there)"],
                )
            yield Served(int(answer["port"]), str(answer["app"]), process)
        finally:
            with contextlib.suppress(OSError):
                if process.stdin is not None:
                    process.stdin.close()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait()


def _first_line(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What the program on the box says, once; empty where it ends or says nothing before the deadline."""
    lines: list[bytes] = []
    stdout = process.stdout
    assert stdout is not None
    reader = threading.Thread(target=lambda: lines.append(stdout.readline()), daemon=True)
    reader.start()
    reader.join(BEGIN_SECONDS)
    try:
        found = json.loads(lines[0]) if lines else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@contextlib.contextmanager
def _way_in(url: str, token: str) -> Iterator[Path]:
    """A page of mode 0600 that leads there with the token; removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="sweepstack-jupyter-"))
    try:
        file = folder / "open.html"
        file.touch(mode=0o600)
        way = escape(f"{url}?token={token}")
        page = '<meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>Jupyter</title>\n'
        file.write_text(
            f'<!doctype html>{page}<meta http-equiv="refresh" content="0; url={way}"><a href="{way}">{way}</a>\n'
        )
        yield file
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
