"""Each edit that a program makes in a stack file changes one value, and no other byte, in any layout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweepstack.config import yaml_bounds
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.onbox.common.errors import ConfigError
from tests.unit.cli.test_stackfile import word

BLOCK = """\
# a person's file
config:
  sweepstack:sweep:
    job:   {run: "x"}   # aligned by hand
    cells:
      grid:
        lr:
        - 0.1
        - 1.0
      # below the grid

    boxes:
      a:            # as it comes
      b: {memory: 2GB}
      c:
        want: running   # for now
    pull_to: 'results'
encryptionsalt: v1:x
"""
FLOW = (
    'config: {"sweepstack:sweep": { job: {run: "x"},  # aligned by hand\n'
    "  cells: {grid: {lr: [0.1, 1.0]}}, boxes: {a: , b: {memory: 2GB}, c: {want: running}, },\n"
    "  pull_to: 'results' # here\n  }, other:key: 1}   # the end\n"
)
LAYOUTS = {
    "block": BLOCK,
    "flow": FLOW,
    "no newline at the end": BLOCK.removesuffix("encryptionsalt: v1:x\n").rstrip(),
    "Windows": BLOCK.replace("\n", "\r\n"),
    "both newlines": BLOCK.replace("hand\n", "hand\r\n"),
    "byte order mark": "\ufeff" + BLOCK,
    "flow, byte order mark": "\ufeff" + FLOW,
    "breaks that YAML alone knows": BLOCK.replace('"x"', '"x\u2028y\x85z 关机"'),
    "kept empty lines": BLOCK.replace("'results'", "|+\n        results\n\n"),
    "kept empty lines at the end": BLOCK.replace(
        "'results'\nencryptionsalt: v1:x\n", "results\n    z: |+\n      x\n\n"
    ),
    "comments to the end": BLOCK.replace("encryptionsalt", "    # deep\n\n  # shallow\nencryptionsalt"),
    "quoted keys": BLOCK.replace("    cells:", "    'cells':").replace("  sweepstack:sweep:", '  "sweepstack:sweep":'),
    "anchors": BLOCK.replace("{run:", "&j {run:").replace("pull_to:", "again: *j\n    pull_to:"),
    "last an alias": BLOCK.replace("{run:", "&j {run:").replace("'results'", "'results'\n    again: *j"),
}
ODD = "\tyes: \x85 é \u200b 😀"
NOWHERE = {"platform": "local", "boxes": {"a": {"offer": "on", "price": 0.5}}, "at": "2026-11-21T12:00:00Z"}
ADDS: dict[str, tuple[Callable[[StackFile], bool], Callable[[dict[str, Any]], Any]]] = {
    "approval": (lambda file: file.write_approval(word("it: 'hangs'")), lambda sweep: len(sweep["approval"]["waive"])),
    "placement": (lambda file: file.write_placement(NOWHERE), lambda sweep: sweep["placement"] == NOWHERE),
    "drop": (lambda file: file.write_drop("lr1.0", ODD), lambda s: s["cells"]["drop"]["lr1.0"] == ODD),
    "want of an empty box": (lambda file: file.write_want("a", "gone"), lambda s: s["boxes"]["a"] == {"want": "gone"}),
    "want": (lambda file: file.write_want("b", "gone"), lambda s: s["boxes"]["b"] == {"memory": "2GB", "want": "gone"}),
}  # fmt: skip
REPLACES: dict[str, tuple[Callable[[StackFile], bool], bytes, bytes]] = {
    "want": (lambda file: file.write_want("c", "gone"), b"want: running", b"want: gone"),
    "pull_to": (lambda file: file.write_pull_to("s3://b/x"), b"pull_to: 'results'", b"pull_to: s3://b/x"),
    "odd pull_to": (lambda file: file.write_pull_to("a, b"), b"pull_to: 'results'", b'pull_to: "a, b"'),
}


@pytest.fixture(params=LAYOUTS, ids=LAYOUTS)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> StackFile:
    path = tmp_path / "Pulumi.x.yaml"
    path.write_bytes(LAYOUTS[request.param].encode())
    return StackFile(path, "stacks/Pulumi.x.yaml")


@pytest.fixture(params=[True, False], ids=["C", "Python"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML's parser in C, and the one that it has where that could not be built."""
    if not request.param:
        monkeypatch.setattr(yaml_bounds, "_Loader", yaml_bounds.yaml.BaseLoader)


def alike(one: bytes, other: bytes) -> int:
    """How many bytes are the same from the beginning on."""
    return next((at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right), len(one))


def rest(sweep: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in sweep.items() if key != name}


@pytest.mark.parametrize("name", ADDS)
def test_what_is_added_is_added_in_one_place(file: StackFile, name: str) -> None:
    write, there = ADDS[name]
    before, said = file.path.read_bytes(), file.sweep()
    assert write(file)
    after = file.path.read_bytes()
    head = alike(before, after)
    assert head + alike(before[head:][::-1], after[head:][::-1]) == len(before), (
        "more than one place, or a byte is gone"
    )
    assert there(file.sweep())
    key = {"drop": "cells"}.get(name, name) if not name.startswith("want") else "boxes"
    assert rest(file.sweep(), key) == rest(said, key)
    assert not write(file), "idempotent"
    assert file.path.read_bytes() == after
    if name in ("approval", "placement"):
        assert list(file.sweep())[-1] == name
        assert (file.write_approval if name == "approval" else file.write_placement)(None)
        assert file.path.read_bytes() == before


@pytest.mark.parametrize("name", REPLACES)
def test_what_is_replaced_is_replaced_in_its_place(file: StackFile, name: str) -> None:
    write, old, new = REPLACES[name]
    before = file.path.read_bytes()
    assert write(file)
    if old in before:
        assert file.path.read_bytes() == before.replace(old, new)
    assert not write(file), "idempotent"


@pytest.mark.parametrize("name", ADDS)
@pytest.mark.parametrize(
    "text",
    [
        BLOCK.replace("    cells:", "    cells: &c").replace("    boxes:", "    boxes: &b") + "x: {c: *c, b: *b}\n",
        "top: &s {cells: {grid: {lr: [0.1, 1.0]}}, boxes: {a: , b: {memory: 2GB}}}\nconfig: {sweepstack:sweep: *s}\n",
        "top: &s {cells: {grid: {lr: [1.0]}}, boxes: {a: , b: {memory: 2GB}}}\nconfig: {sweepstack:sweep: {<<: *s}}\n",
    ],
    ids=["an anchor elsewhere", "an alias", "merged in"],
)
def test_what_stands_elsewhere_too_is_left_alone(tmp_path: Path, text: str, name: str) -> None:
    """One edit would change two values: refused, with what to write by hand. Where it changes one, it is made."""
    path = tmp_path / "Pulumi.x.yaml"
    path.write_text(text)
    file = StackFile(path, "stacks/Pulumi.x.yaml")
    before = file.sweep()
    if name in ("approval", "placement") and "sweep: *s" not in text:
        assert ADDS[name][0](file)
        assert rest(file.sweep(), name) == before
        return
    with pytest.raises(ConfigError, match=r"stacks/Pulumi\.x\.yaml was left as it is: .*\. Write it by hand: "):
        ADDS[name][0](file)
    assert path.read_text() == text
