"""Attempts to go round the gate of a box on a host: by command, state, and the host's address.

Rows 1–7 and 15–22 of tests/engine/ways-round-the-gate.md, and those of a host alone. What damages copies and approvals
is judged by the evidence on this computer, and proved there (tests/engine/test_artifacts.py, test_approvals.py). One
cell is sealed, one is training. Whatever is typed, the box, its tiers, its runner and its processes stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.engine.commands import Result, assert_failed, assert_refused, ok
from tests.engine.looking import Snapshot, different
from tests.engine.test_by_command import EXHAUSTIVE, wants_more_cpus
from tests.engine.test_by_state import claims
from tests.engine.test_preview import everything
from tests.rented.host_stack import HostStack
from tests.simulators.host import Host


class Locked:
    """The sweep in the middle of its work, and how it looked before it was attacked."""

    def __init__(self, stack: HostStack, other: Host) -> None:
        self.stack, self.other = stack, other
        """`other`: another machine that lets the same key in."""
        self.before: Snapshot
        self.config = stack.config_file.read_text()
        self.stack.keep_state()

    def attacked(self) -> None:
        self.before = self.stack.snapshot()

    def put_back(self) -> None:
        """The state and the stack config as they were; the rest must be so by itself."""
        self.stack.put_back_state()
        self.stack.config_file.write_text(self.config)
        self.stack.assert_unchanged(self.before)

    def box(self, **changed: Any) -> None:
        """Edits the entry of the only box in the stack config."""
        self.stack.edit_config(lambda sweep: sweep["boxes"]["box-0"].update(changed))

    def refused(self, result: Result, *, cells: bool = True, state: bool = False) -> None:
        """The message says why, and nothing changed."""
        assert_refused(result, ["seed1"] if cells else ())
        self.stack.assert_unchanged(self.before, result, state=state)
        assert [r["id"] for r in self.stack.resources("Box")] == list(self.before.boxes), str(result)

    def unproved(self, result: Result, *words: str) -> None:
        """It did not go through, said all of this, and nothing changed: what nobody can see is not gone."""
        assert_failed(result, *words)
        self.stack.assert_unchanged(self.before, result, state=False)
        assert [r["id"] for r in self.stack.resources("Box")] == list(self.before.boxes), str(result)

    def edit_facts(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Edits inputs and outputs of all that the state holds of the box."""

        def edit(resources: list[dict[str, Any]]) -> None:
            for resource in resources:
                if resource["type"] in [f"sweepstack:index:{kind}" for kind in ("Box", "Queue", "Gate")]:
                    for side in ("inputs", "outputs"):
                        change(resource.setdefault(side, {}))

        self.stack.edit_state(edit)


@pytest.fixture(scope="module")
def locked_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    stack = HostStack(tmp_path_factory.mktemp("sweep"))
    other = Host(stack.base / "other")
    (other.folder / "authorized_keys").write_text((stack.host.folder / "id.pub").read_text())
    other.say(**stack.host.environment)
    try:
        stack.write_config()
        stack.init()
        stack.hold("seed1")
        ok(stack.up())
        stack.wait_done(but=["seed1"])
        ok(stack.up())  # what a refresh writes once is written now
        yield Locked(stack, other)
    finally:
        stack.end()
        other.stop()


@pytest.fixture
def locked(locked_once: Locked) -> Iterator[Locked]:
    locked_once.attacked()
    yield locked_once
    locked_once.put_back()


def set_up(stack: HostStack) -> str:
    """The URN of the command that set the host up."""
    (urn,) = (r["urn"] for r in stack.state()["resources"] if r["type"] == "command:remote:Command")
    return str(urn)


ROW_1 = "--refresh=false --parallel=32 --continue-on-error --exclude-protected --remove --run-program"


def mark(stack: HostStack, **marks: bool) -> None:
    """The box in the state, marked by hand as `state protect` and `state taint` do."""
    (path,) = (stack.base / "backend").glob(f".pulumi/stacks/*/{stack.name}.json")
    document = json.loads(path.read_text())
    (box,) = (r for r in document["checkpoint"]["latest"]["resources"] if r["type"] == "sweepstack:index:Box")
    box.update(marks)
    path.write_text(json.dumps(document))


def test_row_1_destroy_and_what_protects_it(locked: Locked) -> None:
    """`--ignore-protect` and `state unprotect` open nothing, nor does anything that a destroy is decorated with."""
    mark(locked.stack, protect=True)
    locked.refused(locked.stack.destroy("--ignore-protect"))
    locked.stack.edit_in_state("unprotect", locked.stack.urn("Box"))
    locked.refused(locked.stack.destroy(*ROW_1.split()), state=True)


@EXHAUSTIVE
def test_row_2_destroy_target(locked: Locked) -> None:
    """The engine stops by itself: the gate depends on it."""
    result = locked.stack.destroy("--target", locked.stack.urn("Box"))
    assert_failed(result, "will be destroyed but was not specified in --target list")
    locked.stack.assert_unchanged(locked.before, result)


@EXHAUSTIVE
@pytest.mark.parametrize("part", ["box", "set-up"])
def test_row_3_destroy_target_dependents(locked: Locked, part: str) -> None:
    """The engine stops by itself: it starts no plugin for dependents of another package than the target's."""
    urn = locked.stack.urn("Box") if part == "box" else set_up(locked.stack)
    result = locked.stack.destroy("--target", urn, "--target-dependents")
    assert_failed(result, "error: unknown provider 'urn:pulumi:")
    locked.stack.assert_unchanged(locked.before, result)


@EXHAUSTIVE
def test_row_4_destroy_without_the_gate(locked: Locked) -> None:
    """What the engine may leave out by its ways: the box is what it was, and is known to the state."""
    result = locked.stack.destroy("--exclude", locked.stack.urn("Gate"))
    locked.stack.assert_unchanged(locked.before, result)


@EXHAUSTIVE
def test_row_5_destroy_without_the_box(locked: Locked) -> None:
    locked.refused(locked.stack.destroy("--exclude", locked.stack.urn("Box")), state=True)


@EXHAUSTIVE
def test_want_gone_without_a_clearance(locked: Locked) -> None:
    locked.box(want="gone")
    locked.refused(locked.stack.up())


@EXHAUSTIVE
@pytest.mark.parametrize("word", ["--replace", "--target-replace"])
def test_rows_16_and_18_replace(locked: Locked, word: str) -> None:
    locked.refused(locked.stack.up(word, locked.stack.urn("Box")))


@EXHAUSTIVE
def test_row_16_taint(locked: Locked) -> None:
    mark(locked.stack, taint=True)
    locked.refused(locked.stack.up())


@EXHAUSTIVE
@pytest.mark.parametrize(("word", "kind"), [("--target", "Box"), ("--exclude", "Gate")])
def test_rows_15_17_and_19_a_replacing_change(locked: Locked, word: str, kind: str) -> None:
    """The box's own check refuses it, whoever else is asked."""
    wants_more_cpus(locked.stack)
    locked.refused(locked.stack.up(word, locked.stack.urn(kind)), state=True)


def test_row_6_another_box_in_its_place(locked: Locked) -> None:
    """A box that the config names no more is not ended, and nothing is made beside it."""
    boxes = {"a": {"want": "running", "host": locked.other.address}}
    locked.stack.edit_config(lambda sweep: sweep.update(boxes=boxes))
    locked.unproved(locked.stack.up(), "box a is not rented", "locked", *locked.before.boxes)
    assert not list(locked.other.home.iterdir()), "something was written to the other machine"


def test_replacing_the_set_up_runs_it_again_and_ends_nothing(locked: Locked) -> None:
    """The command between box and queue carries nothing that could be lost."""
    result = ok(locked.stack.up("--replace", set_up(locked.stack)))
    assert "preflight: looking at the host" in result.text, str(result)
    locked.stack.assert_unchanged(locked.before, result, state=False)


def test_another_host_in_the_config(locked: Locked) -> None:
    """A box does not move to another machine, and that one gets nothing."""
    locked.box(host=f"{locked.other.address}{locked.stack.platform_root}")
    locked.unproved(locked.stack.up(), "another machine answers at", "sweepctl trust-host")
    assert not list(locked.other.home.iterdir()), "something was written to the other machine"


def test_a_preview_changes_nothing(locked: Locked) -> None:
    """Neither here nor on the host, where there is a change to show: one cell more."""

    def all_there_is() -> dict[str, str]:
        return {path: what for path, what in everything(locked.stack).items() if not path.endswith("/sshd.log")}

    locked.stack.edit_config(lambda sweep: sweep["cells"].update(add=[{"seed": 9}]))
    before = all_there_is()
    result = ok(locked.stack.pulumi("preview", "--diff"))
    after = all_there_is()
    assert after == before, f"{different(before, after)}\n{result}"


@contextmanager
def another_machine(host: Host) -> Iterator[None]:
    """Behind the same address another machine answers, which has another host key."""
    kept = {path: path.read_bytes() for path in host.folder.glob("host_key*")}
    host.new_key()
    try:
        yield
    finally:
        host.stop()
        for path, content in kept.items():
            path.write_bytes(content)
        host.start()


@contextmanager
def another_disk(stack: HostStack) -> Iterator[None]:
    """The host was put back from an image: it shows its key, and its disk has never seen the box."""
    aside = stack.base / "disk-of-before"
    stack.platform_root.rename(aside)
    stack.host.cut()
    try:
        yield
    finally:
        if stack.platform_root.exists():
            assert not list(stack.platform_root.glob("boxes/[!.]*")), "a box was made on the other disk"
            stack.platform_root.rename(stack.base / "disk-of-between")
        aside.rename(stack.platform_root)
        stack.host.cut()


def test_a_host_that_is_down_is_unknown(locked: Locked) -> None:
    """`refresh` forgets nothing, `destroy` is refused."""
    stack = locked.stack
    stack.host.stop()
    try:
        ok(stack.run("pulumi", "refresh", "--yes", "--skip-preview", "--stack", stack.name, "--non-interactive"))
        assert [r["id"] for r in stack.resources("Box")] == list(locked.before.boxes)
        locked.unproved(stack.destroy(), "box-0", stack.host.address)
    finally:
        stack.host.start()


def test_another_machine_behind_the_address(locked: Locked) -> None:
    with another_machine(locked.stack.host):
        locked.unproved(locked.stack.destroy(), "host key")


@pytest.mark.proof  # the adapter: unit/platforms/test_ssh_platform.py; unknown is not gone: the tests above
def test_another_disk_behind_the_address(locked: Locked) -> None:
    """It knows no such box. That is no proof that the box is gone, and nothing is made there either."""
    stack = locked.stack
    with another_disk(stack):
        for command in (stack.destroy, stack.up):
            result = command()
            assert result.rc != 0, f"it went through\n{result}"
            assert "so nothing is known of its boxes" in result.text, str(result)
            assert [r["id"] for r in stack.resources("Box")] == list(locked.before.boxes), str(result)
    after = stack.snapshot(state=False)
    assert (after.boxes, after.processes, after.births) == (
        locked.before.boxes,
        locked.before.processes,
        locked.before.births,
    )
    stack.put_back_state()
    locked.attacked()  # the runner logged that its folder was away for a moment


def test_row_20_gate_and_queue_deleted_from_the_state(locked: Locked) -> None:
    """The box's own delete is all there is: it asks the host, and holds."""
    stack = locked.stack
    stack.edit_in_state("delete", stack.urn("Gate"))
    stack.edit_in_state("delete", stack.urn("Queue"))
    locked.refused(stack.destroy())


@EXHAUSTIVE  # on the handlers: tests/unit/provider/test_box_end.py
def test_a_state_that_was_edited_to_cleared(locked: Locked) -> None:
    """By a receipt that nobody has: the box's delete looks for it, and at the host."""
    locked.stack.edit_state(claims(f"sha256:{'a' * 64}"))
    locked.refused(locked.stack.destroy("--refresh=false"))


@EXHAUSTIVE
def test_rows_21_and_22_a_box_that_the_state_forgot(locked: Locked) -> None:
    """It is named by `status` and by a destroy, and `up` finds it on the host by its tag."""
    stack, (native_id,) = locked.stack, locked.before.boxes
    ok(stack.run("pulumi", "stack", "rm", stack.name, "--force", "--yes", "--preserve-config"))
    stack.init()
    status = stack.sweepctl("status", "--json")
    assert status.rc == 1, str(status)
    assert native_id in status.text, str(status)
    ok(stack.up())
    assert [r["id"] for r in stack.resources("Box")] == [native_id]
    stack.edit_in_state("delete", stack.urn("Box"), "--target-dependents")
    destroyed = stack.destroy()
    assert destroyed.rc != 0, str(destroyed)
    assert native_id in destroyed.text, str(destroyed)
    stack.assert_unchanged(locked.before, destroyed, state=False)


@pytest.mark.proof
def test_a_state_that_was_edited_to_another_host(locked: Locked) -> None:
    """There is such a machine, it lets us in, and has no such box: not gone, and `status` names the real one."""
    stack = locked.stack
    locked.edit_facts(lambda facts: "adapter" in facts and facts.update(adapter=f"ssh:{locked.other.address}"))
    status = stack.sweepctl("status")
    assert_failed(status, "so nothing is known of its boxes", "what bills is not known")
    locked.unproved(stack.destroy("--refresh=false"), "so nothing is known of its boxes")


@EXHAUSTIVE
def test_a_state_that_was_edited_to_another_id(locked: Locked) -> None:
    """A box that never was may be forgotten. The real one is named, and runs on."""
    stack, (real,) = locked.stack, locked.before.boxes

    def edit(resources: list[dict[str, Any]]) -> None:
        for resource in resources:
            for side in ("inputs", "outputs"):
                for name, value in resource.get(side, {}).items():
                    if value == real:
                        resource[side][name] = "host-aaaaaaaaaa"
            resource["id"] = resource.get("id", "").replace(real, "host-aaaaaaaaaa")

    stack.edit_state(edit)
    result = stack.destroy()
    assert result.rc != 0, f"it went through\n{result}"
    assert real in result.text, str(result)
    stack.assert_unchanged(locked.before, result, state=False)
