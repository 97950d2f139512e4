"""Secret scan: no value of a secret in anything that is written down or said, only its name."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.commands import ok
from tests.engine.harness import Stack

NAME = "DRILL_TOKEN"


def holding(base: Path, value: str) -> list[str]:
    """Every file below `base` that has the value in it, in clear."""
    found = []
    for path in base.rglob("*"):
        if path.is_file() and not path.is_symlink() and value.encode() in path.read_bytes():
            found.append(str(path.relative_to(base)))
    return sorted(found)


@pytest.mark.proof
def test_secret_scan(make_stack: Callable[..., Stack]) -> None:
    """State, logs, queue, spec, journal, manifests, receipts, screens, argv: none holds the value. The cell gets it."""
    stack = make_stack(cells=("seed0", "seed1"), boxes=("box-0",))
    value = secrets.token_urlsafe(24)
    stack.env[NAME] = value
    stack.edit_config(lambda sweep: sweep["job"].update({"secrets": [NAME]}))
    script = stack.job / "train.py"
    leaks = (
        f'\nprint("my token is", os.environ["{NAME}"], flush=True)\n'
        f'assert len(os.environ["{NAME}"]) == {len(value)}\n'
        f'if arguments.seed == 1 and os.environ["SWEEPSTACK_ATTEMPT"] == "1":\n'
        f'    sys.exit("failed with " + os.environ["{NAME}"])\n'
    )
    script.write_text(script.read_text() + leaks)
    stack.hold("seed0")
    said = [ok(stack.pulumi("preview", "--diff")), ok(stack.up("--diff"))]
    stack.wait_for(lambda: "seed0" in stack.started(), "seed0 to start")
    for argv in command_lines():
        assert value not in argv
    said.append(ok(stack.sweepctl("status", "--json")))
    said.append(stack.destroy())
    stack.release()
    stack.wait_done()
    stack.wait_idle()
    said += [ok(stack.sweepctl(*words)) for words in (("logs", "seed1"), ("pull",), ("verify", "--json"), ("status",))]
    stack.approve()
    said.append(ok(stack.up("--diff")))
    kept = [path for path in holding(stack.base, value) if not path.endswith("data/sweep/secrets.json")]
    assert kept == []
    place = stack.box_dir("box-0") / "data" / "sweep" / "secrets.json"
    assert value in place.read_text()
    assert place.stat().st_mode & 0o777 == 0o600
    said.append(ok(stack.destroy()))
    assert holding(stack.base, value) == []  # it died with the box
    for result in said:
        assert value not in result.text, result.argv


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_queue.py
def test_secret_that_is_not_set_is_refused_before_anything_is_rented(make_stack: Callable[..., Stack]) -> None:
    """By its name, with the fix; nothing exists then."""
    stack = make_stack(cells=("seed0",), boxes=("box-0",))
    stack.edit_config(lambda sweep: sweep["job"].update({"secrets": [NAME]}))
    for result in (stack.pulumi("preview"), stack.up()):
        assert result.rc != 0, str(result)
        assert NAME in result.text, str(result)
    assert stack.native_ids() == []


def command_lines() -> list[str]:
    """What `ps` shows to everybody on this machine."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and path.name != str(os.getpid()):
            try:
                found.append((path / "cmdline").read_bytes().decode("utf-8", "replace"))
            except OSError:
                continue
    return found
