"""`job.secrets` on the real engine: the job gets the value, and only one file holds it."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.commands import Result, ok
from tests.engine.harness import Stack

VALUE = "hunter2-Zq81kLmWx"
ENV = {"DRILL_SECRET": VALUE}


def with_secret(stack: Stack) -> None:
    def change(sweep: dict) -> None:
        sweep["job"]["secrets"] = ["DRILL_SECRET"]
        sweep["job"]["run"] += ' && printf %s "$DRILL_SECRET" | sha256sum > {out}/seen.txt'

    stack.edit_config(change)


def holders(stack: Stack, value: str = VALUE) -> list[str]:
    """Every file of this sweep (state, evidence, boxes, volumes, checkout, engine's home) that holds the value."""
    found = []
    for path in stack.base.rglob("*"):
        if (
            path.is_file()
            and not path.is_symlink()
            and ".venv" not in path.parts
            and value.encode() in path.read_bytes()
        ):
            found.append(str(path.relative_to(stack.base)))
    return found


def silent(result: Result, value: str = VALUE) -> Result:
    assert value not in result.text, "a command showed the secret"
    return result


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_queue.py
def test_a_secret_that_is_not_set_is_refused_before_anything_is_rented(make_stack: Callable[..., Stack]) -> None:
    stack = make_stack("unset", cells=("seed0",), boxes=("box-0",))
    with_secret(stack)
    for result in (stack.pulumi("preview"), stack.up()):
        assert result.rc != 0, str(result)
        assert "DRILL_SECRET is not set where this command runs" in result.text, str(result)
        assert "export DRILL_SECRET=" in result.text, str(result)
    assert stack.native_ids() == []
    assert stack.births() == []


@pytest.mark.proof  # on a box: tests/onbox/test_setup.py; a new value: unit/provider/test_queue.py
def test_the_job_has_the_secret_and_nothing_else_does(make_stack: Callable[..., Stack]) -> None:
    stack = make_stack("secret", cells=("seed0", "seed1", "seed2"), boxes=("box-0",))
    with_secret(stack)
    stack.hold("seed0")
    silent(ok(stack.pulumi("preview", "--diff", env=ENV)))
    silent(ok(stack.up(env=ENV)))
    file = stack.box_dir("box-0") / "data" / "sweep" / "secrets.json"
    only = [str(file.relative_to(stack.base))]
    assert holders(stack) == only
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "DRILL_SECRET" in json.dumps(stack.state()), "the name is no secret"

    # from another shell, without the value: what runs goes on, and nothing is lost
    silent(ok(stack.up()))
    assert json.loads(file.read_bytes()) == ENV

    # another value: it reaches the cells that start from now on
    other = {"DRILL_SECRET": "correct-horse-battery"}
    result = silent(ok(stack.up(env=other)), other["DRILL_SECRET"])
    assert "job.secrets changed" in result.text, str(result)
    assert json.loads(file.read_bytes()) == other
    stack.release()
    stack.wait_done()
    stack.wait_idle()
    assert seen(stack.durable_cell("seed0")) == digest(VALUE)
    assert {seen(stack.durable_cell(cell)) for cell in ("seed1", "seed2")} == {digest(other["DRILL_SECRET"])}
    for words in (("pull",), ("verify",), ("status", "--json")):
        silent(ok(stack.sweepctl(*words, env=other)), other["DRILL_SECRET"])
    assert holders(stack) == []
    assert holders(stack, other["DRILL_SECRET"]) == only

    # a sweep that is done needs no secret any more: it can be cleared and ended from anywhere
    stack.approve()
    ok(stack.up())
    ok(stack.destroy())
    assert holders(stack, other["DRILL_SECRET"]) == []


@pytest.mark.proof  # on a box: tests/onbox/test_setup.py
def test_a_job_that_prints_its_secret_and_fails_does_not_show_it(make_stack: Callable[..., Stack]) -> None:
    stack = make_stack("printed", cells=("seed0",), boxes=("box-0",))
    with_secret(stack)
    stack.edit_config(lambda sweep: sweep["job"].update(run='echo "the key is $DRILL_SECRET" {seed}; false'))
    result = silent(stack.up(env=ENV))
    assert result.rc != 0
    assert "the key is" in result.text, str(result)
    for word in ("-v=9",):
        silent(stack.up("--logtostderr", word, env=ENV))


def digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


def seen(cell: Path) -> str:
    return (cell / "seen.txt").read_text().split()[0]
