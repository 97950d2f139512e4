"""`sweepctl review`: its files, its exit codes, and what the engine's preview may be instead of a preview."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sweepstack.review.markdown import marker
from tests.unit.cli.support import STACK, World
from tests.unit.review.plans import document, step


def previews(world: World, *steps: Any, code: int = 0, **of: Any) -> None:
    """What `pulumi preview` and `pulumi destroy --preview-only` print."""
    (world.engine / "preview.json").write_text(json.dumps(document(*steps, **of)))
    for verb in ("preview", "destroy"):
        world.on(verb, f'cat "$home/preview.json"; exit {code}')


def ends(world: World) -> list[Any]:
    """The steps of a destroy."""
    return [step("delete", "Box", box.name, old={"native_id": box.native_id, "name": box.name}) for box in world.boxes]


def test_a_change_that_ends_nothing_may_go_on(world: World) -> None:
    """With a cell that only the stack file has; nothing is changed, and the engine is only asked for a preview."""
    world.full()
    world.lrs = "[0.1, 0.3, 0.9, 2.0]"
    world.write_stack_file()
    previews(world)
    result = world.run("review")
    assert result.code == 0, result
    for words in ("pulumi up destroys nothing", "MAY GO ON: yes", "lr2.0  added", "Cells: 0 of 3 verified"):
        assert words in result.out
    assert world.calls() == [f"preview --show-sames --stack {STACK} --json --non-interactive"]


def test_a_destroy_is_reviewed_by_the_check_and_not_by_the_preview(world: World, tmp_path: Path) -> None:
    """The engine's own preview of it goes through: locked, it may not go on; approved and up, it may. All files say
    the same."""
    world.verified()
    previews(world, *ends(world))
    first = world.run("review", "--destroy", "--json")
    assert first.code == 1
    assert first.json["against"] == ["box box-0, box box-1 would be destroyed, and are not cleared: not approved"]
    assert world.run("approve", types="yes").code == 0
    assert "which no `pulumi up` has brought" in world.run("review", "--destroy", "--json").json["against"][0]
    world.up()
    md, html, whole = tmp_path / "new" / "review.md", tmp_path / "review.html", tmp_path / "review.json"
    files = ("-o", str(md), "-o", str(html), "--output", str(whole))
    result = world.run("review", "--destroy", *files)
    assert result.code == 0, result
    assert "all that can't be undone is cleared" in result.out
    assert md.read_text().startswith(marker(STACK) + "\n")
    assert "DESTROYS 2 boxes" in md.read_text().splitlines()[1]
    made = json.loads(whole.read_text())
    assert made["may_go_on"] == "yes"
    assert made["digest"] != first.json["digest"], "that one ends nothing: the boxes are locked"
    calls = len(world.calls())
    assert "its name says in which form" in world.run("review", "-o", "review.txt").err
    assert len(world.calls()) == calls, "nothing is asked of the engine for it"
    assert world.run("review", "--destroy", "--as", "markdown").out == md.read_text()
    assert "DESTROYS 2 boxes</h1>" in html.read_text()
    assert world.run("review", "--destroy", "--as", "html").out == html.read_text()
    assert world.calls()[-1] == f"destroy --preview-only --stack {STACK} --json --non-interactive"


def test_expect_says_no_to_another_change(world: World) -> None:
    world.verified()
    previews(world)
    digest = world.run("review", "--json").json["digest"]
    assert world.run("review", "--expect", digest).code == 0
    world.lrs = "[0.1, 0.3, 0.9, 2.0]"
    world.write_stack_file()
    other = world.run("review", "--expect", digest)
    assert other.code == 1
    assert "the change is another one now" in other.out
    assert world.run("review", "--expect", "sha256:abc").code == 2
    assert "not a whole digest" in world.run("review", "--expect", digest[:-1]).err


def test_base_is_a_revision_of_git(world: World) -> None:
    """The cells that a pull request changes, beside those that an `up` brings in."""
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-C", str(world.root)]
    world.full()
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A", "stacks"], check=True)
    subprocess.run([*git, "commit", "-qm", "base"], check=True)
    world.lrs = "[0.1, 0.3, 2.0]"
    world.write_stack_file(drop="{lr0.3: enough}")
    previews(world)
    base = world.run("review", "--base", "HEAD", "--json").json["base"]
    assert base["revision"] == "HEAD"
    assert [(one["name"], one["change"]) for one in base["cell_changes"]] == [
        ("lr0.3", "dropped"),
        ("lr0.9", "taken out"),
        ("lr2.0", "added"),
    ]
    for wrong in ("nowhere", "--output=x"):
        unknown = world.run("review", f"--base={wrong}")
        assert unknown.code == 2
        assert "git knows no such revision" in unknown.err


@pytest.mark.parametrize("said", ["", "not JSON", "[]", '{"steps": 3}'])
def test_no_preview_is_no_yes(world: World, said: str) -> None:
    """Whatever the engine prints in its place, with any exit code."""
    world.full()
    for code in (0, 1):
        world.on("preview", f"echo 'error: the engine is ill' >&2; printf '%s' '{said}'; exit {code}")
        result = world.run("review")
        assert result.code == 2, result


def test_a_refused_preview_says_why(world: World) -> None:
    world.full()
    previews(world, errors=("Queue resource 'box-0' has a problem: lr0.1 has started",), code=1)
    result = world.run("review", "--json")
    assert result.code == 1
    assert result.json["refusals"] == ["lr0.1 has started"]
    assert result.json["digest"] is None
    previews(world, code=1)
    silent = world.run("review", "--json")
    assert silent.code == 2
    assert "did not say why" in silent.json["problems"][0]


def test_a_box_that_can_not_be_seen_does_not_go(world: World) -> None:
    """Its platform does not answer: it is not called gone, and its end is not cleared."""
    world.verified()
    assert world.run("approve", types="yes").code == 0
    world.up()
    previews(world, *ends(world))
    world.boxes[0].vanish()
    told = world.run("review", "--destroy", "--json").json
    assert (told["may_go_on"], told["destroys"]) == ("yes", 1)
    world.move_registry()
    unseen = world.run("review", "--destroy", "--json")
    assert unseen.code != 0
    assert unseen.json["destroys"] == 2
