"""Attempts to go round the gate by programs: rows 6–15 and 23–27 of ways-round-the-gate.md.

They use bare resources: the wrappers in `components/` set options that make some of these impossible. These programs do
without them: what holds here is the provider alone. One box: its first cell is sealed, its second is training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.engine.commands import Result, assert_failed, assert_refused, ok
from tests.engine.harness import Stack
from tests.engine.looking import Snapshot
from tests.engine.programs import WHOLE, become_program, write_program, write_settings
from tests.engine.test_by_command import EXHAUSTIVE

START = "from base import *\ni = identity()\nv = volume(i)\n"
BIGGER = "resources={'cpu': 2}"
CREATE_FIRST = "Options(delete_before_replace=False)"
DELETE_FIRST = "Options(delete_before_replace=True)"
BLIND = "Options(ignore_changes=['box', 'account', 'generation'])"


ELSEWHERE = "in this version all boxes of a sweep are on one platform and mount the same volume"


class Attack:
    """The sweep, and how it looked before."""

    def __init__(self, stack: Stack, before: Snapshot) -> None:
        self.stack, self.before = stack, before

    def program(self, text: str) -> None:
        """The program from now on."""
        write_program(self.stack, START + text)

    def refused(self, result: Result, *, state: bool = True) -> None:
        """The message names the training cell; box, tiers and runner are the same; so is the state, or its box."""
        assert_refused(result, ["seed1"])
        self.stack.assert_unchanged(self.before, result, state=state)
        boxes = [r["id"] for r in self.stack.resources("Box") if not r.get("delete")]
        assert boxes == sorted(self.before.boxes), f"the state's boxes are {boxes}\n{result}"


class Training:
    """The sweep in the middle of its work; its engine state is put back after each attack."""

    def __init__(self, make_stack: Callable[..., Stack]) -> None:
        self._make = make_stack
        self._stack: Stack | None = None

    def get(self) -> Stack:
        """The sweep, made when there is none."""
        if self._stack is None:
            stack = self._make(cells=("seed0", "seed1"), boxes=("a",), init=False)
            become_program(stack)
            stack.hold("seed1")
            ok(stack.up())
            stack.wait_done(but=["seed1"])
            ok(stack.up())
            write_settings(stack, with_box=True)
            stack.keep_state()
            self._stack = stack
        return self._stack

    def spoil(self) -> None:
        """An attack got through."""
        if self._stack is not None:
            self._stack.close()
        self._stack = None


@pytest.fixture(scope="module")
def training(make_stack: Callable[..., Stack]) -> Training:
    """See `Training`."""
    return Training(make_stack)


@pytest.fixture
def attack(training: Training) -> Iterator[Attack]:
    """The sweep before an attack; its state, its program and its looks are checked and put back afterwards."""
    stack = training.get()
    write_program(stack, WHOLE)
    before = stack.snapshot()
    try:
        yield Attack(stack, before)
        stack.put_back_state()
        stack.assert_unchanged(before, state=False)
    except BaseException:
        training.spoil()
        raise


@pytest.mark.proof  # row 27 takes them out, too
def test_row_6_box_queue_and_gate_taken_out(attack: Attack) -> None:
    """A box is not ended because the program no longer mentions it."""
    attack.program("")
    attack.refused(attack.stack.up())


@EXHAUSTIVE
def test_row_6_continue_on_error(attack: Attack) -> None:
    """Nor with `--continue-on-error`, which goes on to everything that does not depend on the failed delete."""
    attack.program("")
    attack.refused(attack.stack.up("--continue-on-error"))


@EXHAUSTIVE
def test_row_7_only_the_gate_taken_out(attack: Attack) -> None:
    """A gate that the program no longer mentions stays while its box is locked."""
    attack.program("b = box(i, v)\nq = queue(i, b)")
    attack.refused(attack.stack.up(), state=False)


@EXHAUSTIVE
def test_row_8_gate_and_queue_with_a_literal_id(attack: Attack) -> None:
    """Gate and queue that name the box by a literal don't depend on it: only the box's own delete is left to refuse."""
    attack.program("q = queue(i, None)\ng = gate(i, None)")
    attack.refused(attack.stack.up(), state=False)


@EXHAUSTIVE
def test_row_8_gate_with_a_literal_id(attack: Attack) -> None:
    """The same with the queue taken out too: its delete asks the same check."""
    attack.program("g = gate(i, None)")
    attack.refused(attack.stack.up(), state=False)


@pytest.mark.parametrize(
    ("box_options", "gate_options", "queue_options"),
    [
        pytest.param(CREATE_FIRST, BLIND, BLIND, id="9 create first, gate sees nothing"),
        pytest.param(CREATE_FIRST, "None", BLIND, id="10 create first, gate sees the box", marks=EXHAUSTIVE),
        pytest.param(CREATE_FIRST, "None", "None", id="11 create first, all see the box", marks=EXHAUSTIVE),
        pytest.param(DELETE_FIRST, BLIND, BLIND, id="13 delete first, gate sees nothing", marks=EXHAUSTIVE),
        pytest.param(DELETE_FIRST, "None", "None", id="15 delete first, gate sees the box", marks=EXHAUSTIVE),
        # on the handlers: tests/unit/provider/test_host.py
        pytest.param("None", "None", "None", id="15 the provider alone says delete first", marks=EXHAUSTIVE),
    ],
)
@pytest.mark.parametrize(
    "forced",
    [
        pytest.param(False, id="changed input"),
        pytest.param(True, id="forced replace", marks=EXHAUSTIVE),  # row 16 in test_by_command.py
    ],
)
def test_rows_9_to_15_a_replace(
    attack: Attack, box_options: str, gate_options: str, queue_options: str, forced: bool
) -> None:
    """However the replace of a locked box is ordered, whoever looks on: the box stays, and no second one is rented."""
    change = "" if forced else f", {BIGGER}"
    attack.program(
        f"b = box(i, v, {box_options}{change})\nq = queue(i, b, {queue_options})\ng = gate(i, b, {gate_options})"
    )
    words = ("--replace", attack.stack.urn("Box")) if forced else ()
    # A forced create-first replace adopts the box by its tag (row 12): the old entry stays in the state, to be deleted.
    attack.refused(attack.stack.up(*words), state=not forced and "ignore" not in gate_options + queue_options)
    assert len(attack.stack.births()) == 1


WORD = """
from datetime import UTC, datetime, timedelta
from sweepstack.core.records import Abandonment, Approval
given_up = (Abandonment(box="a", native_id=LITERAL["native_id"], reason="a drill"),)
word = {
    "receipt": None,
    "actions": [{"verb": "destroy", "box": "a", "native_id": LITERAL["native_id"]}],
    "waive": [],
    "abandon": [one.model_dump() for one in given_up],
    "waivers_digest": Approval.digest_waivers((), given_up),
    "by": "me",
    "at": "2026-01-01T00:00:00Z",
    "expires": "2099-01-01T00:00:00Z",
}
b = box(i, v, Options(delete_before_replace=True), approval=word)
q = queue(i, b, approval=word)
g = gate(i, b, Options(depends_on=[q]), approval=word)
"""
"""The whole program, with a person's abandonment of the box."""


def ends(stack: Stack) -> None:
    """With the abandonment in the program, at most three commands end the box, and nothing is rented on the way."""
    births = len(stack.births())
    write_program(stack, START + WORD)
    typed = [stack.up(), stack.destroy()]
    if typed[-1].rc != 0:
        typed.append(stack.destroy())
    assert typed[-1].rc == 0, "\n\n".join(map(str, typed))
    assert stack.native_ids() == []
    assert not stack.state().get("resources")
    assert len(stack.births()) == births


@EXHAUSTIVE
def test_row_12_the_way_back(training: Training) -> None:
    """A forced create-first replace adopts the same id; once the force is gone, at most three commands end the box."""
    stack = training.get()
    before = stack.snapshot()
    write_program(stack, START + f"b = box(i, v, {CREATE_FIRST})\nq = queue(i, b)\ng = gate(i, b)")
    try:
        result = stack.up("--replace", stack.urn("Box"))
        assert_refused(result, ["seed1"])
        stack.assert_unchanged(before, result, state=False)
        write_program(stack, WHOLE)
        stack.assert_unchanged(before, stack.up(), state=False)
        stack.assert_unchanged(before, stack.destroy(), state=False)
        ends(stack)
    finally:
        training.spoil()


@EXHAUSTIVE
def test_another_name_the_way_back(training: Training) -> None:
    """A resource that was renamed and named back leaves two entries of one box in the state: both can go."""
    stack = training.get()
    before = stack.snapshot()
    write_program(
        stack,
        START + "b = box(i, v, resource_name='b')\nq = queue(i, b, resource_name='b-queue')\n"
        "g = gate(i, b, resource_name='b-gate')",
    )
    try:
        result = stack.up()
        assert_refused(result, ["seed1"])
        stack.assert_unchanged(before, result, state=False)
        ends(stack)
    finally:
        training.spoil()


@EXHAUSTIVE
def test_row_14_gate_without_an_input_from_the_box(attack: Attack) -> None:
    """`depends_on` alone does not make the engine ask the gate: the box's delete refuses."""
    attack.program(
        f"b = box(i, v, {DELETE_FIRST}, {BIGGER})\nq = queue(i, None)\ng = gate(i, None, Options(depends_on=[b]))"
    )
    attack.refused(attack.stack.up(), state=False)


def parents(gate_options: str, box_options: str = "None") -> str:
    """A program whose gate and box have these options; the gate names the box by a literal."""
    return f"g = None\nb = box(i, v, {box_options})\nq = queue(i, None)\ng = gate(i, None, {gate_options})"


@EXHAUSTIVE
def test_row_23_gate_is_the_parent_of_the_box(attack: Attack) -> None:
    """Children are deleted first: a box below its gate reaches its own delete before the gate is asked."""
    attack.program(
        "g = gate(i, None)\nq = queue(i, None)\n"
        "b = box(i, v, Options(parent=g, aliases=[pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)]))"
    )
    ok(attack.stack.up())
    attack.refused(attack.stack.destroy(), state=False)


@EXHAUSTIVE
def test_row_24_gate_is_a_child_of_the_box(attack: Attack) -> None:
    """A gate below its box, without an input from it, is not asked when the box is replaced."""
    child = "Options(parent=b, aliases=[pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)])"
    attack.program(parents(child))
    ok(attack.stack.up())
    attack.refused(attack.stack.destroy(), state=False)
    attack.program(f"b = box(i, v, {DELETE_FIRST}, {BIGGER})\nq = queue(i, None)\ng = gate(i, None, {child})")
    attack.refused(attack.stack.up(), state=False)
    attack.program(parents(child))
    attack.refused(attack.stack.up("--replace", attack.stack.urn("Box")), state=False)


@EXHAUSTIVE
def test_row_25_gate_deleted_with_the_box(attack: Attack) -> None:
    """`deleted_with` skips the delete of gate and queue: the box's own is asked, and refuses."""
    attack.program("b = box(i, v)\nq = queue(i, b, Options(deleted_with=b))\ng = gate(i, b, Options(deleted_with=b))")
    ok(attack.stack.up())
    attack.refused(attack.stack.destroy(), state=False)


@EXHAUSTIVE
def test_row_26_gate_of_a_box_that_is_gone(attack: Attack) -> None:
    """A gate that stands for a box which does not exist never reports itself gone, and opens nothing for another."""
    gone = "local-aaaaaaaaaa"
    attack.program(f"b = box(i, v)\nq = queue(i, b)\ng = gate(i, b, box={gone!r})")
    attack.stack.up()
    attack.stack.assert_unchanged(attack.before, state=False)
    attack.refused(attack.stack.destroy(), state=False)


def test_row_27_nothing_but_a_box(attack: Attack) -> None:
    """With gate and queue gone from the state the box's own delete holds: plain, as a replace, and by its absence."""
    stack = attack.stack
    for kind in ("Gate", "Queue"):
        stack.edit_in_state("delete", stack.urn(kind))
    attack.refused(stack.destroy(), state=False)
    attack.program("")
    attack.refused(stack.up(), state=False)
    attack.program(f"b = box(i, v, {DELETE_FIRST})")
    attack.refused(stack.up("--target-replace", stack.urn("Box")), state=False)


@pytest.mark.proof  # a replace: rows 9 to 15; on the handlers: tests/unit/provider/test_dispatch.py
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("name='b'", ELSEWHERE),
        pytest.param("mounts={}", ELSEWHERE, marks=EXHAUSTIVE),
        pytest.param("adapter='elsewhere'", ELSEWHERE, marks=EXHAUSTIVE),
        pytest.param("identity='another'", "may not change once box exists", marks=EXHAUSTIVE),
        ("evidence='file://localhost/tmp/other'", "may not change once box exists, but to where `sweepctl pull --to`"),
    ],
)
def test_an_input_that_makes_it_another_box(attack: Attack, change: str, words: str) -> None:
    """No input of a locked box turns it into another box, or its evidence into another's."""
    attack.program(f"b = box(i, v, {DELETE_FIRST}, {change})\nq = queue(i, b)\ng = gate(i, b)")
    result = attack.stack.up()
    assert_failed(result, words)
    attack.stack.assert_unchanged(attack.before, result)


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_leftover.py
def test_another_name_in_the_program(attack: Attack) -> None:
    """To the engine another name is a new resource and an old one to delete: the box survives that."""
    attack.program(
        "b = box(i, v, resource_name='b')\n"
        "q = queue(i, b, resource_name='b-queue')\n"
        "g = gate(i, b, resource_name='b-gate')"
    )
    result = attack.stack.up()
    assert_refused(result, ["seed1"])
    attack.stack.assert_unchanged(attack.before, result, state=False)
    assert len(attack.stack.births()) == 1


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_box_end.py
def test_an_approval_made_up_by_the_program(attack: Attack) -> None:
    """An approval in the program for a receipt that nobody has opens nothing: the box shows why it stays locked."""
    approval = (
        "{'receipt': 'sha256:' + '0' * 64,"
        " 'actions': [{'verb': 'destroy', 'box': 'a', 'native_id': LITERAL['native_id']}],"
        " 'waivers_digest': Approval.digest_waivers((), ()), 'by': 'nobody', 'at': '2026-01-01T00:00:00Z',"
        " 'expires': '2099-01-01T00:00:00Z'}"
    )
    attack.program(
        "from sweepstack.core.records import Approval\n"
        f"word = {approval}\nb = box(i, v, {DELETE_FIRST}, approval=word)\nq = queue(i, b, approval=word)\n"
        "g = gate(i, b, approval=word)"
    )
    result = ok(attack.stack.up("--diff"))
    assert "locked (" in result.text, str(result)
    attack.stack.assert_unchanged(attack.before, result, state=False)
    attack.refused(attack.stack.destroy(), state=False)


@pytest.mark.proof
def test_retain_on_delete(attack: Attack) -> None:
    """`retain_on_delete` makes the engine forget a box without asking it: the box runs on, and `up` adopts it again."""
    stack = attack.stack
    attack.program(
        "b = box(i, v, Options(retain_on_delete=True))\nq = queue(i, b, Options(retain_on_delete=True))\n"
        "g = gate(i, b, Options(retain_on_delete=True))"
    )
    ok(stack.up())
    attack.program("")
    result = stack.up()
    stack.assert_unchanged(attack.before, result, state=False)
    write_program(stack, WHOLE)
    ok(stack.up())
    stack.assert_unchanged(attack.before, state=False)
    assert len(stack.births()) == 1
    assert [r["id"] for r in stack.resources("Box")] == sorted(attack.before.boxes)
