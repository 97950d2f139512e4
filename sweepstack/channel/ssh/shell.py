"""A shell or a command of a person on a box over SSH, and a forwarded port."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweepstack.channel import agent_source
from sweepstack.channel.ssh.failures import said_last, wrong_key
from sweepstack.channel.ssh.options import Way
from sweepstack.onbox.common.errors import PlatformError, Unreachable
from sweepstack.onbox.visit.shell import interrupts_for_command

LOST = 255
"""What ssh itself exits with; a command may, too: then ssh has said nothing."""
CONNECT_SECONDS = 40.0
LONGEST_PAUSE = 30.0


def attach(way: Way, settings: Mapping[str, Any], python: str, *, proxied: bool) -> int:
    """See `Channel.attach`. Through a relay there is a login shell and nothing else."""
    if proxied:
        if settings["argv"]:
            raise PlatformError(
                f"{settings['native_id']} is reached through its platform's relay, which passes a terminal and no "
                f"command: `sweepctl ssh BOX`, and type it there"
            )
        remote: list[str] = []
    else:
        remote = [agent_source.given(python, agent_source.visit(settings))]
    kind = "-tt" if settings["terminal"] or proxied else "-T"
    with tempfile.TemporaryDirectory(prefix="sweepstack-") as folder:
        log = Path(folder) / "ssh.log"
        # An interrupt at the terminal goes to the command; without one on the box, ssh ends, and the box ends it.
        with interrupts_for_command():
            code = subprocess.run([*way.command(kind, "-E", str(log), shared=not proxied), *remote]).returncode
        said = _said(log)
    if code == LOST and said:
        raise _why(way, said)
    return 128 - code if code < 0 else code


def reach(way: Way, port: int, local: int, say: Callable[[str], None]) -> str:
    """See `Channel.reach`. A tunnel of its own, made anew whenever it breaks, until Ctrl-C."""
    where = f"http://127.0.0.1:{local}"
    pause, made = 1.0, False
    while True:
        with _tunnel(way, port, local) as (process, log):
            if _established(process, local):
                try:
                    say(f"{where} is port {port} of the box; Ctrl-C ends it" if not made else f"{where} is there again")
                    made, pause = True, 1.0
                    process.wait()
                except KeyboardInterrupt:
                    return f"{where} was port {port} of the box, until now"
            said = _said(log)
        if "already in use" in said or "cannot listen" in said:
            raise PlatformError(
                f"port {local} of this machine is taken. Next: forward another one, as {local + 1}:{port}"
            )
        if not made:
            raise _why(way, said or "the tunnel was not made in time")
        try:
            time.sleep(pause)
        except KeyboardInterrupt:
            return f"{where} was port {port} of the box, until the connection broke"
        pause = min(pause * 2, LONGEST_PAUSE)


@contextlib.contextmanager
def _tunnel(way: Way, port: int, local: int) -> Any:
    with tempfile.TemporaryDirectory(prefix="sweepstack-") as folder:
        log = Path(folder) / "ssh.log"
        options = ["-N", "-o", "ExitOnForwardFailure=yes", "-E", str(log), "-L", f"127.0.0.1:{local}:127.0.0.1:{port}"]
        process = subprocess.Popen(
            way.command(*options, shared=False, masters=False), stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            yield process, log
        finally:
            process.terminate()
            process.wait()


def _established(process: subprocess.Popen[bytes], local: int) -> bool:
    ends = time.monotonic() + CONNECT_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if probe.connect_ex(("127.0.0.1", local)) == 0 and process.poll() is None:
                return True
        time.sleep(0.05)
    return False


def _said(log: Path) -> str:
    try:
        with log.open("rb") as handle:
            return handle.read(8000).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return ""


def _why(way: Way, said: str) -> PlatformError:
    if wrong := wrong_key(way, said):
        return wrong
    where = f"{way.pin.native_id} at {way.endpoint.host}:{way.endpoint.port}"
    own = "; a tunnel takes a connection of its own, which your shared one can make: ssh -O forward -L …"
    return Unreachable(f"{where} can't be reached: {said_last(way, said)}{f'{own} {way.name}' if way.master else ''}")
