"""`sweepctl profile check`: what is wrong with one profile, or with all."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweepstack.cli import completion
from sweepstack.cli.options import AsJson
from sweepstack.cli.output import NO, YES, Out, Unsure, count
from sweepstack.core.suggest import did_you_mean
from sweepstack.profiles.load import FOLDER, mistakes_in, platforms
from sweepstack.profiles.mistakes import Mistake


def command(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            help="A profile's file, or a platform's name; default: all.",
            autocompletion=completion.platforms,
        ),
    ] = None,
    json: AsJson = False,
) -> int:
    """Check one profile, or all: each mistake with file, line, key and fix. Exit 1: there is one."""
    out = Out(as_json=json)
    checked = [_path(file)] if file is not None else [FOLDER / f"{name}.md" for name in platforms()]
    found: dict[str, list[Mistake]] = {}
    for path in checked:
        shown = f"profiles/{path.name}" if path.parent == FOLDER else str(path)
        found[shown] = mistakes_in(path, shown)
    out.document(
        {
            "files": list(found),
            "mistakes": [
                {"file": shown, "line": one.line, "key": one.key, "problem": one.problem, "fix": one.fix}
                for shown, mistakes in found.items()
                for one in mistakes
            ],
        }
    )
    for shown, mistakes in found.items():
        for one in mistakes:
            out.line(f"{shown}:{one.line}  {one.key}", style="bold", wrap=False)
            out.line(f"  problem  {one.problem}")
            out.line(f"  fix      {one.fix}")
    wrong = sum(map(len, found.values()))
    out.line(f"{count(len(found), 'profile')}: {count(wrong, 'mistake') if wrong else 'all holds'}")
    return NO if wrong else YES


def _path(named: str) -> Path:
    """The file that is meant. Raises Unsure."""
    path = FOLDER / f"{named}.md" if named in platforms() else Path(named)
    if not path.is_file():
        near = did_you_mean(named, platforms())
        raise Unsure(f"{named} is no file and no platform{near}", ["sweepctl profile list"])
    return path
