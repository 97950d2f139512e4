"""`python -m tests.week`: plays the pages on the real engine, and writes what was said into docs/."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.engine.harness import ROOT, Stack
from tests.engine.package_project import Project, empty_project
from tests.week.from_script import OWN
from tests.week.own import NAME, own, prepare
from tests.week.play import Play
from tests.week.script import week
from tests.week.tutorial import tutorial

PAGES = {"tutorial.md": tutorial, "week.md": week}
PROJECTS: dict[str, tuple[str, Callable[[Project], None], Callable[[Project], Play]]] = {
    "your-own-train-py.md": (NAME, prepare, own),
    **{page: (one.name, one.prepare, one.play) for page, one in OWN.items()},
}
"""Pages of a project with a wheel: its folder's name, what is there before, and the play. They need `--trainer`."""


def main(names: Sequence[str]) -> None:
    """Writes these pages, by default all, or none where a play ends early."""
    pages = {}
    for name in names or (*PAGES, *PROJECTS):
        if name in PROJECTS:
            pages[name] = _own(*PROJECTS[name])
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


def _own(name: str, prepare: Callable[[Project], None], play: Callable[[Project], Play]) -> str:
    with tempfile.TemporaryDirectory(prefix="w-") as base, empty_project(Path(base), name) as project:
        prepare(project)
        return play(project).page()


if __name__ == "__main__":
    main(sys.argv[1:])
