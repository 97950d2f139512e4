"""Attempts to go round the gate of a box on a cluster: by command, by state, and past its scheduler.

Rows 1–6 and 15–22 of tests/engine/ways-round-the-gate.md, where the box's own delete is what Slurm adds: it would
cancel jobs and remove a folder of the shared tier. One cell is sealed, one is training. Whatever is typed, the jobs,
the folder and the processes on the nodes stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.commands import assert_failed, assert_refused, ok
from tests.engine.test_by_command import wants_more_cpus
from tests.engine.test_by_state import claims
from tests.rented.slurm_stack import SlurmStack
from tests.rented.test_hosts_bypass import ROW_1, mark
from tests.rented.test_hosts_bypass import Locked as LockedHost

pytestmark = pytest.mark.proof  # a refused destroy on a cluster: test_cluster.py; the rows by the engine: tests/engine


class Locked(LockedHost):
    """The sweep on a cluster in the middle of its work. Its tests use no other machine."""

    def __init__(self, stack: SlurmStack) -> None:
        super().__init__(stack, None)  # type: ignore[arg-type]

    def refused_whole(self, *words: str) -> None:
        """A destroy, with these words more, is refused with the cell that is not safe."""
        self.refused(self.stack.destroy(*words))


@pytest.fixture(scope="module")
def locked_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    stack = SlurmStack(tmp_path_factory.mktemp("sweep"), cells=("seed0", "seed1"), nodes=1)
    try:
        stack.write_config()
        stack.init()
        stack.hold("seed1")
        ok(stack.up(timeout=300))
        stack.wait_done(but=["seed1"])
        stack.wait_for(lambda: len(stack.jobs(stack.native_ids()[0])) == 1, "the end of the worker without a cell")
        ok(stack.up())  # what a refresh writes once is written now
        yield Locked(stack)
    finally:
        stack.end()


@pytest.fixture
def locked(locked_once: Locked) -> Iterator[Locked]:
    locked_once.attacked()
    assert locked_once.before.files[locked_once.before.boxes[0]]["jobs"].endswith(" RUNNING")
    yield locked_once
    locked_once.put_back()


def test_row_1_destroy_and_what_protects_it(locked: Locked) -> None:
    mark(locked.stack, protect=True)
    locked.refused_whole("--ignore-protect")
    locked.stack.edit_in_state("unprotect", locked.stack.urn("Box"))
    locked.refused(locked.stack.destroy(*ROW_1.split()), state=True)


def test_rows_2_to_5_parts_of_a_destroy(locked: Locked) -> None:
    """The engine stops by itself at some, and the box's own check at the others."""
    stack, before = locked.stack, locked.before
    assert_failed(stack.destroy("--target", stack.urn("Box")), "was not specified in --target list")
    for words in (("--target", stack.urn("Box"), "--target-dependents"), ("--exclude", stack.urn("Gate"))):
        result = stack.destroy(*words)
        stack.assert_unchanged(before, result, state=False)
    locked.refused(stack.destroy("--exclude", stack.urn("Box")), state=True)


def test_row_6_another_box_in_its_place(locked: Locked) -> None:
    """A box that the config names no more is not ended, and no jobs of another are submitted beside its own."""
    stack = locked.stack
    boxes = {"a": {"want": "running", "host": stack.address, "workers": 2}}
    stack.edit_config(lambda sweep: sweep.update(boxes=boxes))
    locked.unproved(stack.up(), "box a is not rented", "locked", *locked.before.boxes)
    assert stack.boxes_there() == list(locked.before.boxes)


def test_want_gone_without_a_clearance(locked: Locked) -> None:
    locked.box(want="gone")
    locked.refused(locked.stack.up())


@pytest.mark.parametrize("word", ["--replace", "--target-replace"])
def test_rows_16_and_18_replace(locked: Locked, word: str) -> None:
    locked.refused(locked.stack.up(word, locked.stack.urn("Box")))


def test_row_16_taint(locked: Locked) -> None:
    mark(locked.stack, taint=True)
    locked.refused(locked.stack.up())


def test_another_folder_or_login_node_in_the_config(locked: Locked) -> None:
    """A box does not move, and nothing is made where the config now points."""
    stack = locked.stack
    locked.box(host=stack.address.replace("/sweeps", "/elsewhere"))
    locked.unproved(stack.up(), "a box does not move to")
    assert not (stack.cluster.shared / "elsewhere").exists()


def test_row_20_gate_and_queue_deleted_from_the_state(locked: Locked) -> None:
    """The box's own delete is all there is: it asks the login node, and holds."""
    stack = locked.stack
    stack.edit_in_state("delete", stack.urn("Gate"))
    stack.edit_in_state("delete", stack.urn("Queue"))
    locked.refused_whole()


def test_a_state_that_was_edited_to_cleared(locked: Locked) -> None:
    locked.stack.edit_state(claims(f"sha256:{'a' * 64}"))
    locked.refused_whole("--refresh=false")


def test_rows_21_and_22_a_box_that_the_state_forgot(locked: Locked) -> None:
    """`status` and a destroy name it; `up` finds it by its tag, and submits no worker a second time."""
    stack, (native_id,) = locked.stack, locked.before.boxes
    ok(stack.run("pulumi", "stack", "rm", stack.name, "--force", "--yes", "--preserve-config"))
    stack.init()
    status = stack.sweepctl("status", "--json")
    assert status.rc == 1, str(status)
    assert native_id in status.text, str(status)
    ok(stack.up())
    assert [r["id"] for r in stack.resources("Box")] == [native_id]
    stack.assert_unchanged(locked.before, state=False)
    stack.edit_in_state("delete", stack.urn("Box"), "--target-dependents")
    destroyed = stack.destroy()
    assert destroyed.rc != 0, str(destroyed)
    assert native_id in destroyed.text, str(destroyed)
    stack.assert_unchanged(locked.before, destroyed, state=False)


def test_a_controller_that_does_not_answer_is_no_empty_queue(locked: Locked) -> None:
    """squeue that fails proves nothing: neither a refresh nor a destroy takes the jobs for ended, and an `up` submits
    none beside them."""
    stack = locked.stack
    stack.cluster.shadow("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    try:
        again = stack.run("pulumi", "refresh", "--yes", "--skip-preview", "--stack", stack.name, "--non-interactive")
        assert "no worker" not in ok(again).text, str(again)
        assert "no runner is alive" not in again.text, str(again)
        stack.up()  # whether it goes through or not: `put_back` counts the jobs
        result = stack.destroy()
        assert result.rc != 0, str(result)
        assert [r["id"] for r in stack.resources("Box")] == list(locked.before.boxes), str(result)
    finally:
        stack.cluster.shadow("squeue", None)


def test_a_login_node_that_is_down_is_unknown(locked: Locked) -> None:
    """`refresh` forgets nothing, `destroy` is refused."""
    stack = locked.stack
    stack.cluster.login.isolate()
    try:
        ok(stack.run("pulumi", "refresh", "--yes", "--skip-preview", "--stack", stack.name, "--non-interactive"))
        result = stack.destroy()
        assert_failed(result, "box-0", f"{stack.cluster.login.host}:{stack.cluster.login.port}")
        assert [r["id"] for r in stack.resources("Box")] == list(locked.before.boxes), str(result)
    finally:
        stack.cluster.login.isolate(False)


def test_a_change_that_would_replace_the_box(locked: Locked) -> None:
    """More CPUs are the workers' matter here, and no change of the box: nothing is replaced."""
    wants_more_cpus(locked.stack)
    planned = locked.stack.pulumi("preview", "--json", timeout=180)
    steps = [(step["op"], step["urn"].split("::")[-2]) for step in ok(planned).json()["steps"]]
    assert not [op for op, kind in steps if "replace" in op or op == "delete"], steps


def test_jobs_cancelled_from_outside_open_nothing(locked_once: Locked) -> None:
    """Last: without its workers the sweep is as unproved as before."""
    stack = locked_once.stack
    (native_id,) = stack.boxes_there()
    stack.cluster.ask("scancel", f"--name={native_id}")
    stack.wait_for(lambda: not stack.jobs(native_id), "the end of the jobs")
    assert_refused(stack.destroy(), ["seed1"])
    assert stack.boxes_there() == [native_id]
