"""The list of losses is whole, and the follower reads what screens say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweepstack.core.columns import fitted
from tests.states import losses
from tests.states.conftest import At
from tests.states.following import filled, ways
from tests.states.real import Real


@pytest.mark.parametrize("start", ["finished", "cleared"])
def test_every_file_is_of_a_kind(start: str, fast_at: At) -> None:
    """A record or file that is new in the product has to get a row."""
    world = fast_at(start)
    there = [
        str(path.relative_to(world.base))
        for folder in ("evidence", "data")
        for path in sorted((world.base / folder).rglob("*"))
        if path.is_file()
    ]
    assert [name for name in there if not losses.is_known(name)] == []


SCREEN = """\
error: sweep-a is not there
next   sweepctl give-up --stack t data/box-0 --reason "…" && pulumi destroy --stack t    (where it is lost)
       pulumi up --stack t    (goes on)
"""
REFUSAL = """\
  next           fix what is in the way, then pulumi destroy --stack t
  give up        sweepctl give-up --stack t data/box-0 --reason "…" && pulumi destroy --stack t
"""


@pytest.mark.parametrize("columns", [30, 50, 76, 80])
@pytest.mark.parametrize(
    "screen",
    [
        SCREEN,
        REFUSAL,
        f"    error: REFUSED.\n{REFUSAL}    as for         box a: next\n\nResources:\n    2 errored\n",
        "error: nothing is known of box a. Next: pulumi up --stack t    (looks again, and then says what it found)",
        "error: begun. Next: pulumi destroy --stack t, or, to go on with it, sweepctl revoke --stack t",
        "next   sweepctl finish --stack t    (after boxes.b.want, boxes.c.want is set to gone in stacks/Pulumi.t.yaml)",
        "next   sweepctl verify --stack t    (a long remark)\n$ sweepctl verify\nnext   sweepctl status --stack t\n",
    ],
)
def test_what_a_screen_names_is_found_however_it_was_wrapped(screen: str, columns: int) -> None:
    assert ways(screen)
    assert ways(fitted(screen, columns)) == ways(screen), fitted(screen, columns)


def test_what_a_screen_names() -> None:
    first, second = ways(SCREEN)
    assert [filled(command) for command in first.commands] == [
        ("sweepctl", "give-up", "--stack", "t", "data/box-0", "--reason", "a drill"),
        ("pulumi", "destroy", "--stack", "t"),
    ]
    assert second.commands == (("pulumi", "up", "--stack", "t"),)
    (given_up,) = ways(REFUSAL)
    assert (given_up.label, len(given_up.commands)) == ("give up", 2)
    (named,) = ways('error: held elsewhere. Next, where that backend is lost: sweepctl adopt --stack t --reason "…"')
    assert named.commands[0][:2] == ("sweepctl", "adopt")
    (gone,) = ways("next   sweepctl finish --stack t    (after boxes.b.want is set to gone in stacks/Pulumi.t.yaml)")
    assert (gone.gone, gone.commands[0][:2]) == (("b",), ("sweepctl", "finish"))
    (last,) = ways("next   sweepctl verify --stack t\n$ sweepctl verify\nnext   sweepctl status --stack t\n")
    assert last.looks


ASKS = """\
#!/bin/sh
printf 'let box-0 be destroyed? Type yes to go on: ' >&2
read word
echo "next   sweepctl status --stack t" >&2
echo "       pulumi destroy --stack t" >&2
"""


def test_what_follows_a_question_is_read_as_on_a_terminal(tmp_path: Path) -> None:
    """There the answer's own line end is echoed, and what is said next begins a line."""
    (tmp_path / "sweepctl").write_text(ASKS)
    (tmp_path / "sweepctl").chmod(0o755)
    world = Real.__new__(Real)
    world.env, world.host, world.read_only = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}, "", ()
    asked = world.run("sweepctl", cwd=tmp_path)
    assert [way.commands[0][1] for way in ways(asked.text)] == ["status", "destroy"], asked
