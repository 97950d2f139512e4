"""A page of docs/ against the play that it was made from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.engine.commands import Result
from tests.engine.harness import ROOT
from tests.engine.package_project import Project
from tests.week.play import Play


def assert_shown(page: str, play: Play) -> None:
    """The page shows the commands that were typed, in their order. One that shows others is stale."""
    shown = re.findall(r"^```console\n\$ (.+)$", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    assert shown == play.typed, f"docs/{page} is stale: python -m tests.week"


def without_answers(page: str) -> str:
    """The page without what the commands said."""
    return re.sub(
        r"^(```console\n\$ .+\n)[\s\S]*?^```$", r"\1```", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE
    )


class Reading(Play):
    """A play that is only read: files are written and edited, and no command is run."""

    @classmethod
    def of(cls, base: Path, title: str) -> Reading:
        """In this folder, as if the base of the play were beside it."""
        return cls(Project(base.parent, base, {}), base, title)

    def type(self, command: str, *, rc: int | None = 0, expect: Sequence[str] = (), **how: Any) -> Result:
        """Writes the command down; an answer of nothing."""
        self.typed.append(command)
        self.lines += ["", "```console", f"$ {command}", "```"]
        return Result((command,), rc or 0, "", "", 0.0)

    def made(self, path: Path, text: str) -> None:
        """Writes what a command would have."""
        self.write(path, text)
