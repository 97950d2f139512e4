"""What every command of `sweepctl` has: --json, and exit codes that docs/cli.md names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from sweep.cli.main import app

DOCS = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text("utf-8")
HANDS_OVER = {"ssh", "exec"}
"""Whose output is another program's: its bytes and its exit code pass through, so there is no document of ours."""

OF_NO_STACK = {"new", "audit"}
"""The one makes a stack; the other asks about all of them."""

_group = typer.main.get_command(app)
assert isinstance(_group, TyperGroup)
COMMANDS = dict(_group.commands)


def exit_codes() -> dict[str, list[str]]:
    """The table of exit codes: command → what 0, 1 and 2 mean."""
    section = DOCS.partition("### Exit codes\n")[2].partition("\n#")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:3] == "| `"]
    return {name: row[1:] for row in rows for name in re.findall(r"`([a-z-]+)`", row[0])}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command(name: str) -> None:
    command = COMMANDS[name]
    options = {option for parameter in command.params for option in parameter.opts}
    assert ("--json" in options) is (name not in HANDS_OVER), f"{name} and --json"
    assert ("--stack" in options) is (name not in OF_NO_STACK)
    assert command.help, f"{name} says nothing of itself"
    codes = exit_codes().get(name)
    assert codes is not None, f"docs/cli.md, Exit codes: there is no row for {name}"
    assert len(codes) == 3
    assert all(codes), f"docs/cli.md, Exit codes: {name}: {codes}"


def test_no_row_for_what_is_no_command() -> None:
    assert set(exit_codes()) == set(COMMANDS)
