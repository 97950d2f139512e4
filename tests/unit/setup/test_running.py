"""Steps side by side, deadlines, the lock of the cache, and the messages of a set-up that cannot go on."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from scripts.lib import console as console_module
from scripts.lib import main as main_module
from scripts.lib.console import Console
from scripts.lib.errors import Cancelled, SetupError
from scripts.lib.network import answers
from scripts.lib.places import Places
from scripts.lib.processes import Together, run
from scripts.lib.python_env import installed_version, locked_version
from scripts.lib.versions import parse
from scripts.lib.wheels import find_uv, pinned
from tests.unit.setup.conftest import ROOT, write_command


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_deadline_ends_the_whole_group(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = f"sleep 3000 & echo $! > {note}; wait"
    with pytest.raises(SetupError, match="still running after"):
        run(["/bin/sh", "-c", script], what="sleeper", deadline=0.5)
    ends = time.monotonic() + 60
    while alive(int(note.read_text())) and time.monotonic() < ends:
        time.sleep(0.01)
    assert not alive(int(note.read_text()))


def test_failure_quotes_the_last_lines() -> None:
    with pytest.raises(SetupError, match=r"exit code 3(.|\n)*the reason"):
        run(["/bin/sh", "-c", "echo the reason >&2; exit 3"], what="step", deadline=5)


def test_missing_command_is_a_setup_error() -> None:
    with pytest.raises(SetupError, match="cannot run"):
        run(["/no/such/tool"], what="step", deadline=5)


def test_first_failure_ends_the_others_and_is_the_one_that_is_told() -> None:
    def fails(cancel: threading.Event) -> None:
        raise SetupError("the cause")

    def long(cancel: threading.Event) -> None:
        run(["/bin/sleep", "3000"], what="long", deadline=3000, cancel=cancel)  # longer than a test may take

    with pytest.raises(SetupError, match="the cause") as caught:
        Together()([long, fails])
    assert not isinstance(caught.value, Cancelled)


def test_ctrl_c_ends_what_was_started(tmp_path: Path) -> None:
    program = """
import sys
from scripts.lib.processes import Together, run
note = sys.argv[1]
step = lambda cancel: run(["/bin/sh", "-c", f"echo $$ > {note}; exec sleep 60"], what="x", deadline=60, cancel=cancel)
try:
    Together()([step])
except KeyboardInterrupt:
    sys.exit(130)
"""
    note = tmp_path / "pid"
    setup = subprocess.Popen([sys.executable, "-c", program, str(note)], cwd=ROOT)
    try:
        ends = time.monotonic() + 60
        while not (note.exists() and note.read_text().strip()) and time.monotonic() < ends:
            time.sleep(0.02)
        setup.send_signal(signal.SIGINT)
        assert setup.wait(120) == 130
    finally:
        setup.kill()
    assert not alive(int(note.read_text()))


def test_long_steps_are_not_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with Console(tick_seconds=0.05).step("build", "about 3 min") as step:
        step.note = "compiled 7 of 9"
        said = until_said(capsys, "compiled 7 of 9\n")
    said += capsys.readouterr().out
    assert "build (about 3 min)" in said
    assert re.search(r"… build: \d+ s, compiled 7 of 9\n", said)
    assert re.search(r"build: done in \d+\.\d s, compiled 7 of 9\n", said)


def until_said(capsys: pytest.CaptureFixture[str], words: str) -> str:
    """All that was said, as soon as these words are in it."""
    said, ends = "", time.monotonic() + 60
    while words not in said:
        assert time.monotonic() < ends, said
        time.sleep(0.01)
        said += capsys.readouterr().out
    return said


@pytest.mark.parametrize("terminal", [True, False])
def test_signs_of_life_are_rarer_in_a_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    often, seldom = ("TICK_SECONDS", "LOG_TICK_SECONDS") if terminal else ("LOG_TICK_SECONDS", "TICK_SECONDS")
    monkeypatch.setattr(console_module, often, 0.02)
    monkeypatch.setattr(console_module, seldom, 600.0)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    with Console().step("build"):
        assert re.search(r"… build: \d+ s\n", until_said(capsys, " s\n"))


def test_failed_step_is_not_called_done(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    with pytest.raises(SetupError), console.step("build"):
        raise SetupError("no")
    assert "done" not in capsys.readouterr().out
    assert console.took == []


def test_cache_is_for_one_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = tmp_path / "engine" / ".lock"
    lock.parent.mkdir()
    with lock.open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        let_go = threading.Event()

        class Heard(Console):
            """The holder lets go when the other one says that it waits."""

            def say(self, text: str) -> None:
                super().say(text)
                let_go.set()
                fcntl.flock(holder, fcntl.LOCK_UN)

        with main_module.cache_lock(lock, Heard(), threading.Event()):
            assert let_go.is_set()
    assert "another set-up is at work" in capsys.readouterr().out


def test_waiting_for_the_cache_can_be_ended(tmp_path: Path) -> None:
    lock, cancel = tmp_path / ".lock", threading.Event()
    with lock.open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        threading.Timer(0.1, cancel.set).start()
        with pytest.raises(Cancelled), main_module.cache_lock(lock, Console(), cancel):
            pass


def test_probe_of_a_host_that_is_not_there_or_says_nothing_ends() -> None:
    assert not answers("http://127.0.0.1:9/", seconds=2)
    assert not answers("http://no-such-host.invalid/", seconds=2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the connection, and never a word
        assert not answers(f"http://127.0.0.1:{silent.getsockname()[1]}/", seconds=0.5)


def test_old_python_is_told_what_is_needed(tmp_path: Path) -> None:
    program = "import runpy, sys; sys.version_info = (3, 9, 0); runpy.run_path(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", program, str(ROOT / "scripts" / "setup")],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "needs Python 3.11 or newer, this is 3.9" in done.stderr
    assert "Traceback" not in done.stderr


def test_entry_parses_on_an_old_python() -> None:
    compile((ROOT / "scripts" / "setup").read_text(), "setup", "exec", dont_inherit=True)
    text = (ROOT / "scripts" / "setup").read_text().partition("from pathlib")[0]
    assert 'f"' not in text
    assert "from __future__" not in text


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v3.259.0\n", (3, 259, 0)),
        ("uv 0.13.8 (x86_64)", (0, 13, 8)),
        ("go1.26", (1, 26, 0)),
        ("go1.25.11", (1, 25, 11)),
    ],
)
def test_versions(text: str, version: tuple[int, int, int]) -> None:
    assert parse(text) == version


def test_pins_are_readable() -> None:
    assert parse(pinned(ROOT / "scripts" / "requirements-uv.txt")) >= (0, 7, 0)
    assert parse(pinned(ROOT / "scripts" / "engine" / "requirements-go.txt")) >= (1, 25, 11)
    assert parse(locked_version(ROOT, "pulumi")) == (3, 272, 0)


def test_uv_that_is_too_old_is_not_used(tmp_path: Path) -> None:
    uv = write_command(tmp_path / "uv", "#!/bin/sh\necho uv 0.4.30\n")
    assert find_uv({"PATH": str(tmp_path)}) is None
    uv.write_text("#!/bin/sh\necho uv 0.9.1\n")
    assert find_uv({"PATH": str(tmp_path)}) == uv


def test_cpu_build_of_torch_counts_as_its_version(tmp_path: Path) -> None:
    places = Places(tmp_path, tmp_path, tmp_path)
    assert installed_version(places, "torch") is None
    (places.venv / "lib" / "python3.11" / "site-packages" / "torch-2.15.0+cpu.dist-info").mkdir(parents=True)
    assert installed_version(places, "torch") == "2.15.0"


def test_failure_is_one_message_and_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "launcher").write_text("")
    assert main_module.main(["--engine", "path"], tmp_path) == 1
    assert capsys.readouterr().err.startswith("error: set-up failed: ")
    assert not (tmp_path / ".venv").exists()


def test_cache_folder_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Places.of(tmp_path, {"XDG_CACHE_HOME": "/var/c"}).cache == Path("/var/c/sweepstack")
    assert Places.of(tmp_path, {"XDG_CACHE_HOME": "rel"}).cache == tmp_path / ".cache" / "sweepstack"
    assert os.fspath(Places.of(tmp_path, {}).user_bin) == f"{tmp_path}/.local/bin"
