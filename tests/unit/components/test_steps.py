"""The script that the steps of a host become, run by the real shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from components.host_setup import Step, facts, preflight, script

SECONDS = 120


def run(text: str, home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """As the command plugin runs it: the script on the stdin of `sh -s`."""
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], **env}
    return subprocess.run(
        ["sh", "-s"], input=text, env=environment, cwd=home, capture_output=True, text=True, timeout=SECONDS
    )


def test_steps_run_in_order_and_their_facts_are_read(tmp_path: Path) -> None:
    steps = [
        Step("first", "echo one=1; echo noise; cat > first", None, "the first"),
        Step(
            "second",
            'cat > second; echo "two=$(cat second)"; echo "box=$SWEEPSTACK_BOX"; echo "root=$SWEEPSTACK_ROOT"',
            "a 'b'\n$c\\n\n",
            "x",
        ),
    ]
    done = run(script(steps, box="it's a box"), tmp_path)
    assert done.returncode == 0, done.stderr
    found = facts(done.stdout)
    assert found["one"] == "1"
    assert found["two"] == "a 'b'"
    assert (tmp_path / "second").read_text() == steps[1].stdin, "it arrives as it is"
    assert found["box"] == "it's a box"
    assert found["root"] == f"{tmp_path}/.local/share/sweepstack/local"
    assert done.stderr.splitlines() == ["first: the first", "second: x"]


def test_a_step_reads_neither_the_script_nor_the_next_ones_stdin(tmp_path: Path) -> None:
    steps = [Step("greedy", "cat", None, ""), Step("next", "echo ran=yes", None, "")]
    assert facts(run(script(steps, box="b"), tmp_path).stdout) == {"ran": "yes"}


def test_the_first_failure_ends_it_and_is_the_last_line(tmp_path: Path) -> None:
    steps = [Step("bad", "echo why >&2; exit 7", "text", "trying"), Step("next", "touch ran", None, "")]
    done = run(script(steps, box="b", root=str(tmp_path / "root")), tmp_path)
    assert done.returncode == 1
    last = "this host is not set up: its set-up stopped at bad (exit code 7). Fix it there; then: pulumi up"
    assert done.stderr.splitlines() == ["bad: trying", "why", last]
    assert not (tmp_path / "ran").exists()


def test_a_host_that_can_t_keep_the_lock_says_so(tmp_path: Path) -> None:
    step = Step("next", "touch ran", None, "")
    (tmp_path / "root" / "setup.lock").mkdir(parents=True)
    done = run(script([step], box="b", root=str(tmp_path / "root")), tmp_path)
    assert done.returncode == 1
    assert "root/setup.lock can't be written. Fix it there" in done.stderr
    (tmp_path / "file").touch()
    done = run(script([step], box="b", root=str(tmp_path / "file" / "root")), tmp_path)
    assert done.returncode == 1
    assert "file/root can't be made. Fix it there" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_step_that_does_not_end_is_ended(tmp_path: Path) -> None:
    done = run(script([Step("slow", "sleep 600", None, "", seconds=1)], box="b"), tmp_path)
    assert done.returncode == 1
    assert "slow: not done after 1 s, and ended" in done.stderr


def test_two_at_once_wait_for_each_other_but_not_for_what_a_step_leaves_running(tmp_path: Path) -> None:
    """A mount's daemon outlives the step that began it: it must not hold the lock."""
    daemon = Step("daemon", "sleep 600 >/dev/null 2>&1 & echo pid=$!", None, "")
    pid = facts(run(script([daemon], box="b"), tmp_path).stdout)["pid"]
    try:
        assert run(script([Step("next", "true", None, "")], box="b"), tmp_path).returncode == 0
    finally:
        os.kill(int(pid), 9)
    lock = tmp_path / ".local/share/sweepstack/local/setup.lock"
    held = subprocess.Popen(["flock", str(lock), "sh", "-c", "echo held; read line"], stdin=-1, stdout=-1, text=True)
    assert held.stdout is not None
    held.stdout.readline()
    second = subprocess.Popen(
        ["sh", "-s"], stdin=-1, env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]}, text=True
    )
    assert second.stdin is not None
    second.stdin.write(script([Step("next", f"touch {tmp_path}/ran", None, "")], box="b"))
    second.stdin.close()
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(0.5)
    assert not (tmp_path / "ran").exists()
    held.communicate("go\n", timeout=SECONDS)
    assert second.wait(SECONDS) == 0
    assert (tmp_path / "ran").exists()


def test_the_preflight_says_what_a_host_is(tmp_path: Path) -> None:
    done = run(script([preflight()], box="b"), tmp_path)
    assert done.returncode == 0, done.stderr
    found = facts(done.stdout)
    assert found["python"].startswith("3.")
    assert found["clock"].endswith("Z")
    assert int(found["free_gb"]) >= 0
    assert found["system"].startswith("Linux")


def test_the_preflight_stops_at_an_old_python(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\necho python=3.6.9; exit 1\n")
    old.chmod(0o755)
    done = run(script([preflight(str(old)), Step("next", f"touch {tmp_path}/ran", None, "")], box="b"), tmp_path)
    assert done.returncode == 1
    assert "older than Python 3.8" in done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("bad", [{"name": "A b"}, {"create": "a\0"}, {"stdin": "\0"}, {"seconds": 0}])
def test_a_step_that_can_be_none_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no step"):
        Step(**{"name": "ok", "create": "true", "stdin": None, "about": "", **bad})  # type: ignore[arg-type]
