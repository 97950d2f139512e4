"""`python -m tests.week`: plays the tutorial and the week on the real engine, and writes what was said into docs/."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.engine.harness import ROOT, Stack
from tests.week.script import week
from tests.week.tutorial import tutorial


def main() -> None:
    """Writes both pages, or neither where a play ends early."""
    pages = {}
    for name, play in (("tutorial.md", tutorial), ("week.md", week)):
        base = Path(tempfile.mkdtemp(prefix="w-"))
        made: list[Stack] = []

        def make(name: str, base: Path = base, made: list[Stack] = made, **_: bool) -> Stack:
            made.append(Stack(base / "me", name=name))
            return made[-1]

        try:
            pages[name] = play(make).page()
        finally:
            for stack in made:
                stack.close()
            shutil.rmtree(base, ignore_errors=True)
    for name, text in pages.items():
        (ROOT / "docs" / name).write_text(text, encoding="utf-8")
        print(f"wrote docs/{name}")


if __name__ == "__main__":
    main()
