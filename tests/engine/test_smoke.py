"""A smoke run on the real engine: once, before a box is rented, and not when nothing is rented."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.engine.commands import ok
from tests.engine.harness import Stack


@pytest.fixture
def smoking(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """Two boxes; a smoke run that leaves a line each time, and fails while it is told to."""
    stack = make_stack(cells=("seed0", "seed1"))
    broken, count = stack.base / "broken", stack.base / "count"
    run = f"echo once >> {count}; test ! -f {broken} || {{ echo KeyError: lr >&2; exit 3; }}"
    stack.edit_config(
        lambda sweep: sweep["job"].update(smoke={"run": f"{run}; python train.py --seed {{seed}} --out {{out}}"})
    )
    yield stack
    stack.close()


def runs(stack: Stack) -> int:
    path = stack.base / "count"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.proof  # its rules: tests/unit/test_smoke.py; the command: tests/unit/cli/test_smoke.py
def test_it_comes_before_renting_and_once(smoking: Stack) -> None:
    stack = smoking
    (stack.base / "broken").touch()
    preview = ok(stack.pulumi("preview"))
    assert "smoke run: not passed yet" in preview.text
    assert runs(stack) == 0, "a preview runs nothing"

    refused = stack.up()
    assert refused.rc != 0
    assert stack.native_ids() == [], "nothing was rented"
    for words in (
        "the smoke run failed: exit code 3",
        "| KeyError: lr",
        "is not rented",
        "sweepctl doctor --smoke --stack t",
    ):
        assert words in refused.text, f"{words!r} is not said\n{refused}"
    assert "Traceback" not in refused.text
    assert runs(stack) == 1, "two boxes, one run"

    (stack.base / "broken").unlink()
    up = ok(stack.up())
    assert "smoke run: passed" in up.text
    assert runs(stack) == 2
    assert len(stack.native_ids()) == 2
    assert "smoke run: passed in" in ok(stack.pulumi("preview")).text

    # New code that would fail its smoke run: boxes are there, so nothing is rented, and nothing waits for it.
    (stack.base / "broken").touch()
    stack.wait_done()
    stack.wait_idle()
    (stack.job / "note.txt").write_text("new code")
    ok(stack.up())
    assert runs(stack) == 2
