"""What every command of `sweepctl` has: --json, and exit codes that docs/cli.md names."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from sweepstack.cli.app import all_commands, app
from sweepstack.core import extensions
from sweepstack.core.paths import PACKAGE
from tests.unit.cli.support import STACK, World

DOCS = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text("utf-8")
OF_NO_STACK = {"audit", "init"} | {f"profile {verb}" for verb in ("check", "new", "show")}
"""`init` makes a stack; the others ask about all of them, about platforms, or about what a change touches."""


COMMANDS: dict[str, Any] = all_commands()


def exit_codes() -> dict[str, list[str]]:
    """The table of exit codes: command → what 0, 1 and 2 mean."""
    section = DOCS.partition("### Exit codes\n")[2].partition("\n#")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:3] == "| `"]
    return {name: row[1:] for row in rows for name in re.findall(r"`([a-z -]+)`", row[0])}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command(name: str) -> None:
    command = COMMANDS[name]
    options = {option for parameter in command.params for option in parameter.opts}
    assert "--json" in options, f"{name} has no --json"
    assert ("--stack" in options) is (name not in OF_NO_STACK)
    assert command.help, f"{name} says nothing of itself"
    codes = exit_codes().get(name)
    assert codes is not None, f"docs/cli.md, Exit codes: there is no row for {name}"
    assert len(codes) == 3
    assert all(codes), f"docs/cli.md, Exit codes: {name}: {codes}"


def test_no_row_for_what_is_no_command() -> None:
    """Those of an extension that was taken out have their rows."""
    gone = {name for name, extension in extensions.COMMANDS.items() if not (extensions.FOLDER / extension).is_dir()}
    assert {name for name in exit_codes() if not gone & {name, name.partition(" ")[0]}} == set(COMMANDS)


def test_help_is_in_the_order_of_a_day(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("-h", "--help"):
        with pytest.raises(SystemExit) as exit:
            app([word])
        said = capsys.readouterr().out
        assert exit.value.code == 0
        places = [
            said.index(f"\n  {name} ") for name in ("init", "status", "ssh", "retry", "pull", "ledger", "approve")
        ]
        assert places == sorted(places)
        assert "More:" not in said, "a command stands in no section: sweepstack/cli/app.py"
        assert len(said.splitlines()) <= 40, "not on one screen"
        assert "..." not in said.partition("\n")[2], "a first sentence of more than 62 characters"
        assert max(map(len, said.splitlines())) <= 80
    with pytest.raises(SystemExit):
        app(["status", "-h"])
    assert "--watch" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        app(["--version"])
    assert exit.value.code == 0
    assert re.fullmatch(r"sweepctl \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_without_a_box_the_way_out_of_damaged_evidence_is_a_look_at_what_is_left(world: World) -> None:
    (world.evidence / "sweep.json").write_bytes(b"\0" * 80)
    shown = world.run("pull", "--json")
    assert shown.code == 2
    assert "bill" not in shown.json["error"]
    assert shown.json["next"] == [
        f"sweepctl pull --stack {STACK}    (once that is fixed)",
        f"sweepctl status --stack {STACK}    (where that goes on failing: shows the way out)",
    ]
    assert world.run("pull", "--to", f"s3://bucket/{STACK}", "--json").json["next"] == [
        f"sweepctl status --stack {STACK}"
    ]


def _prints(part: ast.expr) -> bool:
    """Whether it is `out`, or a method of it."""
    return ast.unparse(part) in ("out", "out.line", "out.document", "out.table", "out.next")


def test_nothing_is_printed_while_a_progress_line_is_shown() -> None:
    """The line would be left on the screen, before the answer."""
    found = []
    for path in sorted(path for layer in ("cli", "extensions") for path in (PACKAGE / layer).rglob("*.py")):
        for block in ast.walk(ast.parse(path.read_text())):
            if isinstance(block, ast.With) and any("Progress(" in ast.unparse(item) for item in block.items):
                calls = [call for call in ast.walk(block) if isinstance(call, ast.Call)]
                handed = {call: [call.func, *call.args, *(word.value for word in call.keywords)] for call in calls}
                printing = [call for call, parts in handed.items() if any(map(_prints, parts))]
                found += [f"{path.name}: {ast.unparse(call)}" for call in printing]
    assert found == []
