"""What every command of `sweepctl` has: --json, and exit codes that docs/cli.md names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sweepstack.cli import output
from sweepstack.cli.app import app
from sweepstack.cli.verbs import load, names
from tests.unit.cli.support import World

DOCS = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text("utf-8")
OF_NO_STACK = {"audit", "init", "new"}
"""The one makes a stack; the other asks about all of them."""

COMMANDS = {name: load(name) for name in names()}


def exit_codes() -> dict[str, list[str]]:
    """The table of exit codes: command → what 0, 1 and 2 mean."""
    section = DOCS.partition("### Exit codes\n")[2].partition("\n#")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:3] == "| `"]
    return {name: row[1:] for row in rows for name in re.findall(r"`([a-z-]+)`", row[0])}


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
    assert set(exit_codes()) == set(COMMANDS)


def test_help_is_in_the_order_of_a_day(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("-h", "--help"):
        with pytest.raises(SystemExit) as exit:
            app([word])
        said = capsys.readouterr().out
        assert exit.value.code == 0
        places = [said.index(f"\n  {name} ") for name in ("new", "status", "retry", "pull", "approve", "ledger", "ssh")]
        assert places == sorted(places)
        assert "More:" not in said, "a command stands in no section: sweepstack/cli/group.py"
    with pytest.raises(SystemExit):
        app(["status", "-h"])
    assert "--watch" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        app(["--version"])
    assert exit.value.code == 0
    assert re.fullmatch(r"sweepctl \d+\.\d+\.\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize("words", [["logs"], ["status", "--nonsense"], ["nonsense"]])
def test_a_usage_error_is_a_document_too(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    output._documents = 0
    with pytest.raises(SystemExit) as exit:
        app([*words, "--json"])
    said = capsys.readouterr()
    assert exit.value.code == 2
    assert json.loads(said.out)["error"]
    assert "error: " in said.err


@pytest.mark.parametrize(
    "words",
    [
        ["logs", "nosuch"],
        ["curves", "nosuch"],
        ["provenance", "nosuch"],
        ["retry", "nosuch"],
        ["drop", "nosuch", "--reason", "x"],
        ["ssh", "nosuch"],
        ["exec", "nosuch", "true"],
        ["forward", "nosuch", "1"],
        ["approve", "--abandon", "nosuch", "--reason", "x"],
        ["finish", "--box", "nosuch"],
    ],
    ids=lambda words: words[0],
)
def test_an_error_is_one_document(words: list[str], world: World) -> None:
    world.full()
    output._documents = 0
    result = world.run(*words, "--json")
    assert result.code != 0
    document = json.loads(result.out)
    assert "nosuch" in document["error"]
    assert isinstance(document["next"], list)
    assert document["error"].splitlines()[0] in result.err
