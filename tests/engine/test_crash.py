"""A command is killed while it rents: exactly one box exists afterwards, and `up` adopts it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine import looking
from tests.engine.commands import COMMAND_SECONDS, ok
from tests.engine.harness import Stack
from tests.engine.looking import descendants, tree
from tests.engine.test_liveness import WayOut

SLOW = {"SWEEPSTACK_DRILL_BOOT_SECONDS": "600"}
"""Longer than any command is waited for: what ends before that did not wait for the boot."""


@pytest.fixture
def stack(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """One box, two cells, not up yet."""
    made = make_stack(cells=("seed0", "seed1"), boxes=("box-0",))
    yield made
    made.close()


def creating(stack: Stack) -> subprocess.Popen[str]:
    """A `pulumi up` that is in the middle of Box.Create: the box is made and boots until `boots_now`."""
    process = stack.start(
        "pulumi", "up", "--stack", stack.name, "--yes", "--non-interactive", "--skip-preview", env=SLOW
    )
    stack.wait_for(lambda: len(stack.native_ids()) == 1, "a box to be made")
    time.sleep(0.5)
    return process


def providers_of(process: subprocess.Popen[str]) -> list[int]:
    """The plugin processes of this very command: by descent."""
    below = descendants(process.pid)
    found = [pid for pid, command in below.items() if "-m sweepstack.provider" in command]
    assert found, below
    return found


def boots_now(stack: Stack) -> None:
    """The booting is over."""
    path = stack.box_dir("box-0") / "box.json"
    facts = json.loads(path.read_text())
    facts["ready_at"] = facts["created_at"]
    path.write_text(json.dumps(facts))


def one_box_adopted(stack: Stack, native_id: str) -> None:
    """The next `up` adopts: same id, one birth, and the cells run."""
    boots_now(stack)
    goes_on_with_one_box(stack, native_id)


def goes_on_with_one_box(stack: Stack, native_id: str) -> None:
    """The next `up` knows this box and no other, and the cells run."""
    ok(stack.up())
    assert stack.native_ids() == [native_id]
    assert len(stack.births()) == 1
    assert [r["id"] for r in stack.resources("Box")] == [native_id]
    stack.wait_done()
    ok(stack.sweepctl("status"))


def status_names(stack: Stack, native_id: str) -> None:
    """What runs and is in no state is named, with exit code 1."""
    result = stack.sweepctl("status")
    assert result.rc == 1, str(result)
    assert native_id in result.text, str(result)


def test_provider_killed_in_create(stack: Stack) -> None:
    """kill -9 of the plugin in Create leaves no trace in the state; the records and the tag are the memory."""
    process = creating(stack)
    native_id = stack.native_ids()[0]
    for pid in providers_of(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    out, err = process.communicate(timeout=COMMAND_SECONDS)
    assert process.returncode != 0, out + err
    status_names(stack, native_id)
    destroy = stack.destroy(noisy=True)
    assert destroy.rc != 0, f"destroy says all is deleted, and a box bills\n{destroy}"
    assert native_id in destroy.text, str(destroy)
    one_box_adopted(stack, native_id)


@pytest.mark.proof  # the same kill, and another command after it
def test_provider_killed_in_create_and_given_up(stack: Stack) -> None:
    """Only the records have it: an abandonment by name, `up` and `destroy` end it. Three commands."""
    process = creating(stack)
    native_id = stack.native_ids()[0]
    for pid in providers_of(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=COMMAND_SECONDS)
    boots_now(stack)
    assert stack.resources("Box") == []
    out = WayOut(stack)
    out.abandons("box-0")
    out.is_over()
    assert [birth["native_id"] for birth in stack.births()] == [native_id]


@pytest.mark.proof
def test_cli_killed_in_create(stack: Stack) -> None:
    """kill -9 of the CLI: the plugin ends by itself, and after `pulumi cancel` the next `up` adopts."""
    process = creating(stack)
    native_id = stack.native_ids()[0]
    plugins = providers_of(process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    stack.wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in plugins), "the plugins to end")
    ok(stack.run("pulumi", "cancel", stack.name, "--yes", "--non-interactive"))
    status_names(stack, native_id)
    one_box_adopted(stack, native_id)


@pytest.mark.proof  # the same kill, and another command after it
def test_cli_killed_in_create_then_destroy(stack: Stack) -> None:
    """And a destroy instead of an `up` does not report that all is gone: it names the box that bills."""
    process = creating(stack)
    native_id = stack.native_ids()[0]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    ok(stack.run("pulumi", "cancel", stack.name, "--yes", "--non-interactive"))
    destroy = stack.destroy()
    assert destroy.rc != 0, str(destroy)
    assert native_id in destroy.text, str(destroy)
    one_box_adopted(stack, native_id)


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_box_create.py, test_host.py; a kill: the tests above
@pytest.mark.parametrize("times", [pytest.param(1, id="once"), pytest.param(2, id="twice", marks=pytest.mark.proof)])
def test_sigint_in_create(stack: Stack, times: int) -> None:
    """Ctrl-C in Create, once and twice: the command ends, however long the boot, and the next `up` adopts the box."""
    process = creating(stack)
    native_id = stack.native_ids()[0]
    for _ in range(times):
        os.kill(process.pid, signal.SIGINT)
        time.sleep(0.2)
    out, err = process.communicate(timeout=COMMAND_SECONDS)
    assert process.returncode != 0, out + err
    if times == 1:
        assert native_id in out + err, f"the message does not name what bills\n{out}{err}"
        assert [r["id"] for r in stack.resources("Box")] == [native_id]
    stack.run("pulumi", "cancel", stack.name, "--yes", "--non-interactive")
    one_box_adopted(stack, native_id)


@pytest.mark.proof  # from two clones: test_two_people.py
def test_two_ups_at_once(stack: Stack) -> None:
    """Two `up`s at the same time rent one box: the engine's lock, and behind it the tag."""
    first = stack.start("pulumi", "up", "--stack", stack.name, "--yes", "--non-interactive", "--skip-preview")
    second = stack.start("pulumi", "up", "--stack", stack.name, "--yes", "--non-interactive", "--skip-preview")
    ends = [process.communicate(timeout=COMMAND_SECONDS) for process in (first, second)]
    assert 0 in (first.returncode, second.returncode), ends
    ok(stack.up())
    assert len(stack.native_ids()) == 1
    assert len(stack.births()) == 1
    stack.wait_done()


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_box_end.py; half of two: tests/rented/test_hosts.py
def test_killed_in_destroy(small_finished: Stack) -> None:
    """kill -9 of the CLI in the middle of a destroy: the next one finishes it."""
    stack = small_finished
    stack.run_loop()
    process = stack.start("pulumi", "destroy", "--stack", stack.name, "--yes", "--non-interactive", "--skip-preview")
    stack.wait_for(
        lambda: (stack.evidence / "records" / "teardown.json").exists() or process.poll() is not None,
        "a teardown to begin",
    )
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(1)
    stack.run("pulumi", "cancel", stack.name, "--yes", "--non-interactive")
    ok(stack.destroy())
    assert stack.native_ids() == []
    assert not (stack.evidence / "records" / "teardown.json").exists()


@pytest.mark.proof  # for each platform: tests/conformance/test_platforms.py
def test_two_sweeps_with_the_same_box_names(stack: Stack, make_stack: Callable[..., Stack]) -> None:
    """A box is adopted by its whole tag: another sweep's box of the same name is another box."""
    ok(stack.up())
    stack.wait_done()
    other = make_stack(name="other", cells=("seed0", "seed1"), boxes=("box-0",))
    other.env["XDG_DATA_HOME"] = stack.env["XDG_DATA_HOME"]
    before = stack.snapshot()
    ok(other.up())
    assert len(stack.native_ids()) == 2
    assert {r["id"] for r in other.resources("Box")}.isdisjoint(before.boxes)
    born = {birth["native_id"] for birth in other.births()}
    other.wait_for(lambda: not any(looking.processes_of(born).values()), "the other sweep to end")
    assert {name: tree(stack.platform_root / "boxes" / name) for name in before.boxes} == {
        name: before.files[name] for name in before.boxes
    }
