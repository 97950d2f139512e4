"""A command is killed while it makes a box on a host: exactly one box exists, and is adopted.

The rows of tests/engine/test_crash.py in one life of one stack: each command takes up what the one before it left.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pytest

from tests.engine.commands import COMMAND_SECONDS, ok
from tests.engine.test_crash import SLOW, boots_now, goes_on_with_one_box, providers_of, status_names
from tests.rented.host_stack import HostStack


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[HostStack]:
    """One box on one host, which boots for longer than any command is waited for. Not up yet."""
    made = HostStack(tmp_path / "sweep")
    try:
        made.host.say(**made.host.environment, **SLOW)
        made.write_config()
        made.init()
        yield made
    finally:
        made.end()


def up(stack: HostStack) -> subprocess.Popen[str]:
    return stack.start("pulumi", "up", "--stack", stack.name, "--yes", "--non-interactive", "--skip-preview")


def waiting(stack: HostStack, words: str) -> subprocess.Popen[str]:
    """An `up` that has said this of the box, and waits for it to boot."""
    process = up(stack)
    assert process.stdout is not None
    said, deadline = "", Timer(COMMAND_SECONDS, process.kill)
    deadline.start()
    try:
        for line in process.stdout:
            said += line
            if words in line:
                return process
    finally:
        deadline.cancel()
    raise AssertionError(f"it ended with {process.wait(COMMAND_SECONDS)}, and never said {words!r}\n{said}")


def ended(process: subprocess.Popen[str]) -> str:
    """What a command said that must not succeed."""
    out, err = process.communicate(timeout=COMMAND_SECONDS)
    assert process.returncode != 0, out + err
    return out + err


@pytest.mark.proof  # rows of tests/engine/test_crash.py again, on a host: tags are looked for above it
def test_killed_again_and_again_in_create(stack: HostStack) -> None:
    process = waiting(stack, "making its folders there")
    stack.wait_for(lambda: len(stack.native_ids()) == 1, "a box to be made")
    (native_id,) = stack.native_ids()
    for pid in providers_of(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    ended(process)
    assert stack.resources("Box") == []
    status_names(stack, native_id)

    process = waiting(stack, "carries this box's tag: adopted")
    plugins = providers_of(process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    stack.wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in plugins), "the plugins to end")
    ok(stack.run("pulumi", "cancel", stack.name, "--yes", "--non-interactive"))
    refused = stack.destroy()
    assert refused.rc != 0, f"it says that all is deleted, and there is a box\n{refused}"
    assert native_id in refused.text, str(refused)

    process = waiting(stack, f"waiting for box-0 ({native_id}) to be ready")
    os.kill(process.pid, signal.SIGINT)
    assert native_id in ended(process), "the message does not name the box"
    assert [r["id"] for r in stack.resources("Box")] == [native_id]

    process = waiting(stack, f"waiting for {native_id} to run")  # the state has it since
    for _ in range(2):
        os.kill(process.pid, signal.SIGINT)
    ended(process)
    stack.run("pulumi", "cancel", stack.name, "--yes", "--non-interactive")
    assert [r["id"] for r in stack.resources("Box")] == [native_id]

    boots_now(stack)
    both = [up(stack), up(stack)]
    said = [one.communicate(timeout=COMMAND_SECONDS) for one in both]
    assert 0 in [one.returncode for one in both], said
    goes_on_with_one_box(stack, native_id)
