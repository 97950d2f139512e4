"""The `sweepctl` process ends early, and nothing is lost by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ENV = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
PROCESS = """
import sys, {module}
{before}
from sweepstack.cli import app, entry
app.app = lambda: ({action})
entry.main()
print("Python ends as ever")
"""


def ended(action: str, before: str = "", module: str = "atexit, threading, time") -> subprocess.CompletedProcess[str]:
    """A process whose command is `action`."""
    code = PROCESS.format(action=action, before=before, module=module)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=ENV)


@pytest.mark.parametrize(("left", "code"), [("0", 0), ("2", 2), ("", 0), ("None", 0), ("'no such stack'", 1)])
def test_exit_code_is_the_commands(left: str, code: int) -> None:
    done = ended(f"sys.exit({left})")
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == ("no such stack\n" if code == 1 else "")


def test_all_that_was_printed_arrives() -> None:
    """Also where it is more than a pipe holds, and still in Python's own buffer."""
    done = ended("sys.stdout.write('x' * 300_001), sys.stderr.write('last word'), sys.exit(3)")
    assert (done.returncode, len(done.stdout), done.stderr) == (3, 300_001, "last word")


def test_what_was_to_be_done_at_exit_is_done() -> None:
    assert ended("sys.exit()", before="atexit.register(print, 'cleaned up')").stdout == "cleaned up\n"


def test_a_thread_that_python_would_wait_for_is_waited_for() -> None:
    last = "threading.Thread(target=lambda: (time.sleep(0.5), print('written'))).start()"
    assert ended("sys.exit()", before=last).stdout == "written\n"


def test_what_nobody_foresaw_is_shown() -> None:
    done = ended("1 / 0")
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr


def test_an_output_that_nobody_takes_is_no_success() -> None:
    code = PROCESS.format(action="sys.stdout.write('x'), sys.exit(0)", before="", module="os")
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, timeout=120, env=ENV)
    assert done.returncode == 120


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_the_shell_closed_is_an_empty_one(closed: str) -> None:
    """Python has None there, and a file that is opened next would get its number."""
    look = "(sys.stdin.read(), sys.stdin.isatty(), print('said'), sys.stderr.write('also'), sys.exit(3))"
    shell = ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c"]
    done = subprocess.run(
        [*shell, PROCESS.format(action=look, before="", module="os")], capture_output=True, timeout=120
    )
    said = (b"" if ">&-" in closed.replace("2>&-", "") else b"said\n", b"" if "2>&-" in closed else b"also")
    assert (done.returncode, done.stdout, done.stderr) == (3, *said)


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_full_disk_below_the_output_is_no_mistake_of_ours(words: tuple[str, ...], tmp_path: Path) -> None:
    code = "import sys; from sweepstack.cli import entry; sys.argv[0] = 'sweepctl'; entry.main()"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code, "init", "first", *words],
            cwd=project(tmp_path),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            env=ENV,
        )
    assert done.returncode == 2
    assert "the output can't be written: No space left on device" in done.stderr
    assert "a mistake in sweepctl" not in done.stderr


def project(root: Path) -> Path:
    """A folder that a command takes for a project."""
    (root / "Pulumi.yaml").write_text("name: sweepstack\nruntime: python\nstackConfigDir: stacks\n")
    return root


@pytest.mark.parametrize(("set_before", "said"), [(None, "__all__"), ("logfire-plugin", "logfire-plugin")])
def test_pydantic_looks_for_no_plugins_unless_the_user_says_which(set_before: str | None, said: str) -> None:
    """The look reads what every installed distribution says of itself, at each command."""
    env = {name: value for name, value in ENV.items() if name != "PYDANTIC_DISABLE_PLUGINS"}
    if set_before is not None:
        env["PYDANTIC_DISABLE_PLUGINS"] = set_before
    code = PROCESS.format(action="print(os.environ['PYDANTIC_DISABLE_PLUGINS']), sys.exit(0)", before="", module="os")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=env)
    assert done.stdout == f"{said}\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_unicode_takes_all_words(encoding: str) -> None:
    """What it has no character for arrives in others; a document stays one that reads."""
    words = "print('… and 3 more → \u4e16'), __import__('sweepstack.cli.output', fromlist=['x']).Out(as_json=True)"
    code = PROCESS.format(action=f"{words}.document({{'a': '…'}}), sys.exit(0)", before="", module="os")
    env = ENV | {"PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, env=env)
    first, _, document = done.stdout.decode(encoding).partition("\n")
    assert done.returncode == 0, done.stderr
    assert first == "... and 3 more -> ?"
    assert json.loads(document) == {"a": "…"}
