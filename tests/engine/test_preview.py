"""`pulumi preview` reads only and changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.commands import Result, ok
from tests.engine.harness import Stack
from tests.engine.looking import different, tree

OF_THE_ENGINE = ("pulumi-home/",)
"""The engine's own logs, plugin records and workspace choices."""


def everything(stack: Stack) -> dict[str, str]:
    """Checkout, job, data, cache, evidence, backend, home: with times, since a rewritten file is a changed one."""
    found = {}
    for path, what in tree(stack.base, skip=set()).items():
        if path.startswith(OF_THE_ENGINE) or "__pycache__" in path or path.startswith(("saved", "checkout/.venv")):
            continue
        if path.endswith("patrol.jsonl"):
            continue
        time = (stack.base / path).lstat().st_mtime_ns if not what.startswith("dir") else ""
        found[path] = f"{what} {time}"
    return found


def changes_nothing(stack: Stack, *words: str, rc: int | None = 0) -> Result:
    """Runs a preview between two looks at everything, and returns what it said."""
    before = everything(stack)
    result = stack.pulumi(*words)
    after = everything(stack)
    assert rc is None or result.rc == rc, str(result)
    assert after == before, f"{different(before, after)}\n{result}"
    return result


def test_before_anything_exists(make_stack: Callable[..., Stack]) -> None:
    """The very first preview makes neither identity, nor evidence, nor the platform's folder."""
    stack = make_stack()
    changes_nothing(stack, "preview")
    assert not stack.evidence.exists()
    assert not stack.platform_root.exists()


@pytest.mark.proof  # of one at work: test_looking_changes_nothing in test_by_command.py; of a destroy: below
@pytest.mark.parametrize(
    "words",
    [
        ("preview",),
        ("preview", "--diff"),
        ("destroy", "--preview-only", "--diff"),
    ],
)
def test_of_a_finished_sweep(verified: Stack, words: tuple[str, ...]) -> None:
    """A preview of what is there, and of its destroy, writes nothing. Without a terminal it says once for each box that
    it is locked; it stood on the stack's rows, too, up to three times for a box."""
    result = changes_nothing(verified, *words)
    if words == ("preview",):
        assert sorted(re.findall(r"box (\S+) LOCKED", result.out)) == sorted(verified.boxes), str(result)


@pytest.mark.proof  # after an `up`, too: test_loop.py
def test_says_no_changes(verified: Stack) -> None:
    """Right after `up`, a preview has nothing to change."""
    result = ok(verified.pulumi("preview", "--json"))
    summary = {key: count for key, count in result.json()["changeSummary"].items() if key not in ("same", "refresh")}
    assert not any(summary.values()), f"{summary}\n{result}"


@pytest.mark.proof  # a sweep at work and one cell more: test_looking_changes_nothing in test_by_command.py
def test_of_a_changed_config(verified: Stack) -> None:
    """A preview of a new cell and a new price: still nothing is written."""
    verified.edit_config(lambda sweep: sweep["cells"].update({"add": [{"seed": 7}]}))
    verified.edit_config(lambda sweep: sweep["overrides"]["local"].update(price_per_hour=2.5))
    changes_nothing(verified, "preview", "--diff")


def test_of_an_approval(cleared: Stack) -> None:
    """The preview of a cleared sweep's destroy shows what dies and what survives, and writes nothing."""
    result = changes_nothing(cleared, "destroy", "--preview-only", "--diff")
    for words in ("dies", "survives", "verified", "cleared"):
        assert words in result.text, f"{words!r} is not shown\n{result}"


@pytest.mark.proof
def test_of_a_vanished_box(verified: Stack) -> None:
    """A preview that sees a box gone shows its next generation, and closes the record of the one that is proved gone:
    its bill ends there, even if no other command ever comes. The next one changes nothing."""
    verified.vanish("box-1")
    before = everything(verified)
    verified.pulumi("preview", "--diff")
    after = everything(verified)
    changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    assert changed
    assert all("/records/births/box-1-g1" in path or "/records/ledger/" in path for path in map(str, changed)), changed
    changes_nothing(verified, "preview", "--diff")
    changes_nothing(verified, "destroy", "--preview-only", rc=None)


@pytest.mark.proof  # tests/rented/test_mistakes.py; the words: tests/unit/config/test_mistakes.py
def test_wrong_configs_change_nothing(verified: Stack) -> None:
    """A typo is refused with file, line and a suggestion, before anything is asked of the platform."""
    text = verified.config_file.read_text()
    verified.config_file.write_text(text.replace("candidates:", "candidtes:"))
    before = everything(verified)
    result = verified.pulumi("preview")
    assert result.rc != 0, str(result)
    for words in (verified.config_file.name, "candidtes", "candidates"):
        assert words in result.text, f"{words!r} is not said\n{result}"
    after = everything(verified)
    assert after == before, different(before, after)
    assert Path(verified.config_file).exists()
