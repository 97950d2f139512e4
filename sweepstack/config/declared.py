"""What a program declares of its sweep: `stacks/Program.<stack>.yaml`, of a stack file's shape.

A program in any language can give a sweep's keys as inputs of the component. What it gave last stands in this file, so
that `sweepctl` and a reviewer read it without running the program; it is committed, like a lock file
(docs/adr/027-components-in-every-language.md). The stack file then holds what machines write into it, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from sweepstack.config.file import Document, flawless
from sweepstack.config.yaml_bounds import read_text
from sweepstack.onbox.common.canonical import write_atomically
from sweepstack.onbox.common.dataclass import dataclass

MACHINES: Final = ("approval", "placement", "accept_facts")
"""Keys that commands write into the stack file, also where the program declares the sweep: it gives none of them."""
HEADER: Final = """\
# Written by `pulumi preview` and `pulumi up` from what the program declares. Change the program, and commit this file
# with it: sweepctl and reviewers read the sweep here.
"""


@dataclass(frozen=True)
class Declared:
    """The file of one stack as it was read. `key`: `sweepstack:sweep` or `sweepstack:store`; `values`: below it."""

    document: Document
    key: str
    values: dict[str, Any]


def declared_path(stack_file: Path) -> Path:
    """Where what the program of this stack declares stands: `Pulumi.t.yaml` → `Program.t.yaml`."""
    return stack_file.with_name(f"Program.{stack_file.name.removeprefix('Pulumi.')}")


def text_of(key: str, values: Mapping[str, Any]) -> str:
    """The file's text. Keys are sorted at any depth: what a program gives comes over a protocol that has no order, and
    the order of the axes of a grid is in the names of its cells."""
    data = {"config": {key: dict(values)}}
    return HEADER + str(yaml.safe_dump(data, allow_unicode=True, width=110))


def read_declared(stack_file: Path, shown: str, text: str | None = None) -> Declared | None:
    """What the program declares; None where it declares nothing. `shown`: the stack file's name in messages; `text`:
    what the file is about to hold.

    Raises ConfigError for a file that does not read.
    """
    path, shown = declared_path(stack_file), str(declared_path(Path(shown)))
    if text is None:
        if not stack_file.name.startswith("Pulumi.") or not path.is_file():
            return None
        text = read_text(path, shown)
    document = flawless(text, shown)
    config = document.data.get("config")
    if not isinstance(config, dict) or len(config) != 1:
        return None
    ((key, values),) = config.items()
    return Declared(document, key, values) if isinstance(values, dict) else None


def write_declared(stack_file: Path, text: str | None) -> bool:
    """Writes the file, in one step; None takes it away. False where it says that already. Raises OSError."""
    path = declared_path(stack_file)
    if (path.read_text(encoding="utf-8") if path.is_file() else None) == text:
        return False
    if text is None:
        path.unlink()
    else:
        write_atomically(path, text.encode(), mode=0o644)
    return True
