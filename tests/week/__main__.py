"""`python -m tests.week`: plays the pages on the real engine, and writes what was said into docs/."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.engine.harness import ROOT, Stack
from tests.engine.package_project import empty_project
from tests.week.own import NAME, own, prepare
from tests.week.script import week
from tests.week.tutorial import tutorial

PAGES = {"tutorial.md": tutorial, "week.md": week, "your-own-train-py.md": own}


def main(names: Sequence[str]) -> None:
    """Writes these pages, by default all, or none where a play ends early. One needs set-up with `--trainer`."""
    pages = {}
    for name in names or PAGES:
        if PAGES[name] is own:
            pages[name] = _own()
            continue
        base = Path(tempfile.mkdtemp(prefix="w-"))
        made: list[Stack] = []

        def make(name: str, base: Path = base, made: list[Stack] = made, **_: bool) -> Stack:
            made.append(Stack(base / "me", name=name))
            return made[-1]

        try:
            pages[name] = PAGES[name](make).page()
        finally:
            for stack in made:
                stack.close()
            shutil.rmtree(base, ignore_errors=True)
    for name, text in pages.items():
        (ROOT / "docs" / name).write_text(text, encoding="utf-8")
        print(f"wrote docs/{name}")


def _own() -> str:
    with tempfile.TemporaryDirectory(prefix="w-") as base, empty_project(Path(base), NAME) as project:
        prepare(project)
        return own(project).page()


if __name__ == "__main__":
    main(sys.argv[1:])
