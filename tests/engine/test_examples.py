"""The examples of other libraries: `pulumi up`, kill -9 in the middle of training, the same results, and destroy.

One of two cells of the same config is killed at a step that is known: when it begins to write its second checkpoint.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.engine.commands import ok
from tests.engine.harness import Stack

HOOK = '''\
"""Kills this process as it begins to write its second checkpoint; one try of one cell. Tells of each."""

import os, re, signal, sys

SAVE = re.compile(os.environ.get("EXAMPLE_SAVE") or "$.")
seen = []


def look(event, args):
    if event not in ("open", "os.mkdir", "os.rename"):
        return
    path = args[1 if event == "os.rename" else 0]
    found = SAVE.search(path) if isinstance(path, str) else None
    if found is None or found.group() in seen or (event == "open" and not str(args[1]).startswith(("w", "x"))):
        return
    seen.append(found.group())
    cell, attempt = os.environ["SWEEPSTACK_CELL"], os.environ["SWEEPSTACK_ATTEMPT"]
    with open(os.path.join(os.environ["EXAMPLE_TOLD"], cell + "-" + attempt), "a") as file:
        file.write(found.group() + "\\n")
    if (cell, attempt, len(seen)) == ("killed", "1", 2):
        os.kill(os.getpid(), signal.SIGKILL)


if "SWEEPSTACK_CELL" in os.environ:
    sys.addaudithook(look)
'''


@dataclass(frozen=True)
class Example:
    """`save`: of the path of a checkpoint as it is begun, what is another one in each; `same`: results that have to be
    the same, byte for byte."""

    stack: str
    needs: str
    save: str
    same: tuple[str, ...]
    base: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return self.stack


HF = Example("sweep-hf", "transformers", r"(?<=/)checkpoint-\d+$", ("model.safetensors",), (("epochs", 4),))


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(HF, marks=[pytest.mark.torch, pytest.mark.proof], id=HF.stack),  # in make test: the others
    ],
)
def test_killed_and_resumed(example: Example, make_stack: Callable[..., Stack]) -> None:
    if importlib.util.find_spec(example.needs) is None:
        pytest.skip(f"{example.needs} is not installed: scripts/setup --dev --torch --trainer")
    stack = make_stack(name=example.stack, cells=("killed", "whole"), boxes=("box-0",), config=False)
    stack.evidence = stack.checkout / "results" / example.stack
    told = stack.base / "told"
    hooks = stack.base / "hooks"
    for folder in (told, hooks):
        folder.mkdir()
    (hooks / "sitecustomize.py").write_text(HOOK)
    hooked = {"PYTHONPATH": str(hooks), "EXAMPLE_SAVE": example.save, "EXAMPLE_TOLD": str(told)}
    stack.edit_config(lambda sweep: _two_of_one(sweep, example, hooked))

    stack.up()  # ends with 1 where the kill came before the first step that it waits for
    stack.wait_for(lambda: "cell-failed" in {line["event"] for line in stack.journal("box-0")}, "the kill")
    ok(stack.up())
    stack.wait_done()
    first, second, whole = (_saves(told / name) for name in ("killed-1", "killed-2", "whole-1"))
    assert len(whole) >= 3
    assert first == whole[:2], "killed in the middle of training"
    assert second == whole[1:], "it went on from its first checkpoint, and trained nothing again before it"
    assert stack.started() == ["killed", "killed", "whole"]
    stack.wait_idle()

    refused = stack.destroy()
    assert refused.rc != 0, str(refused)
    ok(stack.sweepctl("pull"))
    verified = stack.verify()
    assert {cell["name"]: cell["state"] for cell in verified["cells"]} == dict.fromkeys(stack.cells, "verified")
    cells = stack.evidence / "cells"
    for name in example.same:
        assert (cells / "killed" / name).read_bytes() == (cells / "whole" / name).read_bytes(), name
    stack.approve()
    ok(stack.up())
    ok(stack.destroy())
    assert stack.native_ids() == []


def _two_of_one(sweep: dict[str, Any], example: Example, env: dict[str, str]) -> None:
    """Two cells of the config of the first one."""
    cells = sweep["cells"]
    base = {
        **cells.get("base", {}),
        **dict(example.base),
        **{axis: values[0] for axis, values in cells["grid"].items()},
    }
    sweep["cells"] = {"base": base, "list": [{"name": "killed"}, {"name": "whole"}]}
    sweep["job"].setdefault("env", {}).update(env)


def _saves(path: Path) -> list[str]:
    return path.read_text().splitlines()
