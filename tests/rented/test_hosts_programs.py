"""Attempts to go round the gate of boxes on a host by edited programs: rows 6–15 and 23–27.

The rows of tests/engine/test_by_program.py on the bare resources, with a box of its own for each: all lie on one host,
and a command attacks all of them at once, since each costs seconds. One cell is training on each box. Whatever the
program says, the boxes, their tiers, their runners and their processes stay as they are, and each of them is named.
Replaces are forced: a changed input is refused by the box's own check before any order matters (tests/engine).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pytest

from sweepstack.core.spelling import inside
from tests.engine.commands import Result, assert_refused, ok
from tests.engine.looking import Snapshot
from tests.engine.programs import become_program, write_program
from tests.engine.test_by_program import BLIND, CREATE_FIRST, DELETE_FIRST, START
from tests.rented.host_stack import HostStack

pytestmark = pytest.mark.proof  # a host is a local platform behind an sshd: the refusal is above it


@dataclass(frozen=True)
class Row:
    """What a program says of one box: the options of its resources; "" leaves one out.

    `literal`: queue and gate name the box by its id, and don't come from it. `stands_for`: another input of its gate.
    """

    box: str = CREATE_FIRST
    queue: str = "None"
    gate: str = "None"
    literal: bool = False
    stands_for: str = ""

    def text(self, name: str, number: int) -> str:
        """The lines of the program."""
        of = "None" if self.literal else "b"
        cell = {"name": f"seed{number}", "params": {"seed": str(number)}}
        made = {
            "b": (self.box, f"box(i, v, {self.box}, {name!r}, name={name!r})"),
            "q": (self.queue, f"queue(i, {of}, {self.queue}, '{name}-queue', box_name={name!r}, cells=[{cell}])"),
            "g": (self.gate, f"gate(i, {of}, {self.gate}, '{name}-gate', box_name={name!r}{self.stands_for})"),
        }
        order = "gqb" if "parent=g" in self.box else "bqg"
        lines = [f"LITERAL.clear(); LITERAL.update(FACTS.get({name!r}, {{}}))"]
        lines += [f"{letter} = {made[letter][1]}" for letter in order if made[letter][0]]
        return "\n".join(lines) + "\n"


def below(what: str) -> str:
    """Options that make a resource a child of this one."""
    return f"Options(parent={what}, aliases=[pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)])"


CREATED_FIRST = {
    "nine": Row(queue=BLIND, gate=BLIND),
    "ten": Row(queue=BLIND),
    "twelve": Row(),
    "fifteen-too": Row("None"),
}
"""Rows 9 to 12: a second box would be there before the first one goes. It is the same one, by its tag."""
DELETED_FIRST = {
    "thirteen": Row(DELETE_FIRST, BLIND, BLIND),
    "fourteen": Row(DELETE_FIRST, gate="Options(depends_on=[b])", literal=True),
    "fifteen": Row(DELETE_FIRST),
}
LEFT_OUT = {
    "six": Row("", "", ""),
    "seven": Row(gate=""),
    "eight": Row("", literal=True),
}
"""Rows 6 to 8: the program does not mention a box, or its gate, any more."""
TURNED_ROUND = {
    "six": Row(below("g"), literal=True),
    "seven": Row(gate=below("b"), literal=True),
    "eight": Row(queue="Options(deleted_with=b)", gate="Options(deleted_with=b)"),
}
"""Rows 23 to 25: the gate above its box, below it, and deleted with it."""
OF_NOBODY = Row(stands_for=", box='host-aaaaaaaaaa'")
"""Row 26: the gate stands for a box that does not exist."""
NAMES = (*CREATED_FIRST, *DELETED_FIRST, *LEFT_OUT)


class Boxes:
    """A box for each row, each in the middle of its work."""

    def __init__(self, stack: HostStack) -> None:
        self.stack = stack
        self.facts: dict[str, dict[str, object]] = {}
        self.before: Snapshot

    def program(self, rows: Mapping[str, Row] = MappingProxyType({})) -> None:
        """The program from now on: with these rows, and all other boxes as they were made."""
        parts = [rows.get(name, Row()).text(name, number) for number, name in enumerate(NAMES)]
        write_program(self.stack, f"{START}FACTS = {self.facts!r}\n" + "".join(parts))

    def learn(self) -> None:
        """What the state says of the boxes, for programs that name them by it."""
        outputs = [inside(r["type"], r["outputs"]) for r in self.stack.resources("Box")]
        self.facts = {one["name"]: {key: one[key] for key in ("native_id", "account", "generation")} for one in outputs}

    def refused(self, result: Result, *names: str) -> None:
        """It says so of each of these boxes, and nothing changed on the host."""
        assert_refused(result)
        unnamed = [name for name in names if f"Box {name}:" not in result.text]
        assert not unnamed, f"not named: {unnamed}\n{result}"
        self.stack.assert_unchanged(self.before, result, state=False)
        assert len(self.stack.births()) == len(NAMES), str(result)
        kept = {r["id"] for r in self.stack.resources("Box") if not r.get("delete")}
        assert kept == set(self.before.boxes), f"the state's boxes are {kept}\n{result}"


@pytest.fixture(scope="module")
def boxes_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boxes]:
    cells = tuple(f"seed{number}" for number in range(len(NAMES)))
    stack = HostStack(tmp_path_factory.mktemp("sweep"), cells=cells, boxes=NAMES)
    boxes = Boxes(stack)
    try:
        become_program(stack)
        boxes.program()
        stack.hold(*cells)
        ok(stack.up())
        boxes.learn()
        stack.keep_state()
        yield boxes
    finally:
        stack.end()


@pytest.fixture
def boxes(boxes_once: Boxes) -> Iterator[Boxes]:
    boxes_once.before = boxes_once.stack.snapshot(state=False)
    yield boxes_once
    boxes_once.stack.put_back_state()


def forced(stack: HostStack, *names: str) -> list[str]:
    """Words of `up` that replace these boxes, whatever their inputs are."""
    return [word for name in names for word in ("--replace", stack.urn("Box", name))]


def test_rows_6_to_8_what_is_left_out(boxes: Boxes) -> None:
    boxes.program(LEFT_OUT)
    boxes.refused(boxes.stack.up("--continue-on-error"), *LEFT_OUT)


def test_rows_9_to_12_a_second_one_first(boxes: Boxes) -> None:
    boxes.program(CREATED_FIRST)
    boxes.refused(boxes.stack.up("--continue-on-error", *forced(boxes.stack, *CREATED_FIRST)), *CREATED_FIRST)


@pytest.mark.parametrize("name", DELETED_FIRST)
def test_rows_13_to_15_the_first_one_away_first(boxes: Boxes, name: str) -> None:
    """One at a time: at the first refusal of this kind the engine stops, or with --continue-on-error waits for ever."""
    boxes.program(DELETED_FIRST)
    boxes.refused(boxes.stack.up("--refresh=false", *forced(boxes.stack, name)), name)


def test_rows_23_to_26_a_gate_that_is_not_asked(boxes: Boxes) -> None:
    boxes.program(TURNED_ROUND)
    ok(boxes.stack.up())
    assert "sweepstack:index:Gate$sweepstack:index:Box::six" in boxes.stack.urn("Box", "six")
    boxes.program({**TURNED_ROUND, "nine": OF_NOBODY})
    boxes.stack.up()
    boxes.stack.assert_unchanged(boxes.before, state=False)
    boxes.refused(boxes.stack.destroy("--continue-on-error"), *NAMES)
