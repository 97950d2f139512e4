"""`sweepctl ssh BOX --jupyter`: who gets in, where the token is and is not, and what is left at the end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.status_bench import RUN
from sweepstack.core import extensions
from sweepstack.extensions.notebooks import jupyter
from sweepstack.extensions.notebooks.onbox import serve
from sweepstack.onbox.common import box_layout
from tests.engine.commands import ok
from tests.rented.host_stack import HostStack
from tests.unit.cli.support import STACK, World

FAKE = Path(__file__).with_name("fake_server.py")


def environment(envs: Path, *, has: bool = True) -> Path:
    """An environment of the job, with a Jupyter that is ours or with none: its interpreter."""
    package = envs / "0123456789abcdef" / "packages"
    python = package.parent / "bin" / "python"
    python.parent.mkdir(parents=True)
    if has:
        (package / "jupyter_server").mkdir(parents=True)
        (package / "jupyter_server" / "__init__.py").touch()
        (package / "jupyter_server" / "__main__.py").write_bytes(FAKE.read_bytes())
    python.write_text(f'#!/bin/sh\nPYTHONPATH={package} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


def answer(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def way_in(file: Path) -> str:
    """The address with the token, as a browser reads it from the file."""
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    (found,) = re.findall(r'href="(.*?)"', file.read_text())
    return str(found)


def argv_of_all() -> str:
    """The command lines of all processes of this machine, as `ps` shows them."""
    return "\n".join(" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"]))


def texts_below(*folders: Path) -> Iterator[tuple[Path, bytes]]:
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                yield path, path.read_bytes()


def served(folder: Path) -> list[int]:
    """Processes of the stand-in that live now, of an environment below this folder."""
    found = []
    for one in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            if "jupyter_server" in (one.info["cmdline"] or ()) and str(folder) in one.environ().get("PYTHONPATH", ""):
                found.append(one.pid)
    return found


@pytest.fixture
def begun(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A box of this machine whose job's environment has a server; what the command starts uses the world's engine."""
    world.add("box-0")
    world.save()
    engine = str(world.engine / "pulumi")
    monkeypatch.setattr(jupyter, "ENTRY", RUN.replace("sys.argv.pop(1)", repr(engine)))
    return world


def test_one_person_gets_in_and_nothing_of_it_is_left(begun: World, monkeypatch: pytest.MonkeyPatch) -> None:
    box = begun.boxes[0]
    environment(box.root / box_layout.HOME / "envs")
    seen: dict[str, Any] = {}
    tell = jupyter._tell

    def told(target: Any, name: str, here: int, app: str, file: Path, out: Any) -> None:
        """What a person does, and then types Ctrl-C."""
        tell(target, name, here, app, file, out)
        seen.update(app=app, file=file, url=way_in(file), argv=argv_of_all(), pids=served(begun.folder))
        seen["in"], seen["out"] = answer(seen["url"]), answer(f"http://127.0.0.1:{here}/?token=wrong")
        seen["listens"] = {
            one.laddr.ip for one in psutil.net_connections("tcp") if one.status == "LISTEN" and one.laddr.port == here
        }
        raise KeyboardInterrupt

    monkeypatch.setattr(jupyter, "_tell", told)
    shown = begun.run("ssh", "box-0", "--jupyter")
    assert shown.code == 0, shown
    token = seen["url"].rpartition("=")[2]
    assert (seen["app"], seen["in"], seen["out"]) == ("jupyter_server", (200, "a notebook"), (403, ""))
    assert seen["listens"] == {"127.0.0.1"}
    assert len(token) > 30
    assert token not in shown.out + shown.err + seen["argv"]
    assert seen["pids"], "it ran"
    assert not served(begun.folder), "and it ended with the command"
    assert not seen["file"].exists()
    assert not seen["file"].parent.exists()
    where = [path for path, data in texts_below(begun.folder) if token.encode() in data]
    assert where == [], "neither on the box nor in the evidence"


def test_a_server_that_ends_by_itself_ends_the_command(begun: World, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(begun.boxes[0].root / box_layout.HOME / "envs")
    tell = jupyter._tell

    def told(*words: Any) -> None:
        tell(*words)
        for pid in served(begun.folder):
            os.kill(pid, signal.SIGKILL)

    monkeypatch.setattr(jupyter, "_tell", told)
    shown = begun.run("ssh", "box-0", "--jupyter")
    assert (shown.code, "ended by itself" in shown.out) == (1, True), shown


def test_it_ends_when_the_command_is_killed(tmp_path: Path) -> None:
    """The server's leash is a pipe of that process: what is on the box ends, whichever way the person's side ends."""
    environment(tmp_path)
    process = subprocess.Popen(
        [sys.executable, serve.__file__, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"t" * 43 + b"\n")
    process.stdin.flush()
    told = json.loads(process.stdout.readline())
    assert answer(f"http://127.0.0.1:{told['port']}/?token={'t' * 43}")[0] == 200
    process.stdin.close()
    assert process.wait(30) == 0
    with pytest.raises(urllib.error.URLError):
        answer(f"http://127.0.0.1:{told['port']}/")


def test_a_server_that_fails_says_why_without_its_token(begun: World, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(begun.boxes[0].root / box_layout.HOME / "envs")
    monkeypatch.setenv("FAKE_FAILS", "1")
    monkeypatch.setattr("sweepstack.onbox.visit.shell.KEPT", ("FAKE_FAILS",))
    monkeypatch.setattr(
        jupyter, "ENTRY", "import sweepstack.onbox.visit.shell as s; s.KEPT = ('FAKE_FAILS',)\n" + jupyter.ENTRY
    )
    shown = begun.run("ssh", "box-0", "--jupyter")
    assert shown.code == 1
    assert "did not come up" in shown.err
    assert "it fails with ..." in shown.err
    assert not served(begun.folder)


def test_where_there_is_no_jupyter_it_is_said(begun: World) -> None:
    environment(begun.boxes[0].root / box_layout.HOME / "envs", has=False)
    shown = begun.run("ssh", "box-0", "--jupyter")
    assert shown.code == 1
    assert "no Python of the job has Jupyter" in shown.err
    assert "add jupyterlab to what job.setup installs" in shown.err


def test_words_that_do_not_fit_and_a_missing_extension(
    begun: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for words, said in ((("--forward", "8888:1"), "is no port"), (("--", "ls"), "take no command")):
        refused = begun.run("ssh", "box-0", "--jupyter", "--stack", STACK, *words, stack=None)
        assert (refused.code, said in refused.err) == (2, True), refused
    monkeypatch.setitem(extensions.ROOTS, "sweepstack.extensions", tmp_path)
    refused = begun.run("ssh", "box-0", "--jupyter")
    assert "`sweepctl ssh --jupyter` belongs to the extension `notebooks`" in refused.err


@pytest.mark.proof  # each promise on this machine: above
@pytest.mark.engine
def test_on_a_host_behind_a_real_sshd(tmp_path: Path) -> None:
    """Over SSH, forwarded to a port here; Ctrl-C, and a kill of the command, end what is on the host."""
    stack = HostStack(tmp_path / "sweep")
    try:
        stack.write_config()
        stack.init()
        ok(stack.up())
        environment(stack.box_dir("box-0") / box_layout.HOME / "envs")
        for ends in (signal.SIGINT, signal.SIGKILL):
            process = stack.start(
                str(Path(sys.executable).with_name("sweepctl")),
                "ssh",
                "box-0",
                "--jupyter",
                "--json",
                "--stack",
                stack.name,
            )
            assert process.stdout is not None
            lines = []
            while not lines or lines[-1] != "}\n":
                lines.append(process.stdout.readline())
                assert lines[-1], lines
            told = json.loads("".join(lines))
            url = way_in(Path(told["file"]))
            token = url.rpartition("=")[2]
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                try:
                    assert answer(url) == (200, "a notebook")
                    break
                except urllib.error.URLError:
                    time.sleep(0.2)
            assert token not in argv_of_all()
            os.kill(process.pid, ends)
            assert process.wait(60) == (0 if ends == signal.SIGINT else -ends)
            deadline = time.monotonic() + 30
            while served(tmp_path) and time.monotonic() < deadline:
                time.sleep(0.2)
            assert not served(tmp_path)
            held = [path for path, data in texts_below(tmp_path) if token.encode() in data]
            assert held == []
    finally:
        stack.end()
