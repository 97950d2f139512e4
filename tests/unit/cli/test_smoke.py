"""`sweepctl doctor --smoke`."""

from __future__ import annotations

import pytest

from tests.unit.cli.support import World


@pytest.fixture
def project(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The world's job, with a smoke run that fails while `broken` is there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(world.folder / "cache"))
    (world.root / "job" / "train.py").write_text("print('training')\n")
    broken = world.folder / "broken"
    text = world.file.path.read_text()
    smoke = f"      smoke: {{run: 'echo {{lr}}; touch {{out}}/metrics.json; ! test -f {broken}'}}\n    cells:"
    world.file.path.write_text(text.replace("    cells:", smoke, 1))
    return world


def test_it_passes_and_is_remembered(project: World) -> None:
    first = project.run("doctor", "--smoke")
    assert first.code == 0, first
    assert first.out.startswith("passed in ")
    assert first.out.splitlines()[-1] == "next   pulumi up --stack sweep-t"
    again = project.run("doctor", "--smoke", "--json").json
    assert (again["passed"], again["ran"], again["cell"], again["missing"]) == (True, False, "lr0.1", [])
    assert project.run("doctor", "--smoke", "--force", "--json").json["ran"] is True


def test_it_fails_with_the_end_of_its_log(project: World) -> None:
    (project.folder / "broken").touch()
    result = project.run("doctor", "--smoke")
    assert result.code == 1
    assert "the smoke run failed: exit code 1" in result.err
    assert "| 0.1" in result.err
    assert "next   fix it, then sweepctl doctor --smoke --stack sweep-t" in result.err


def test_one_on_the_boxes_is_not_run_here(project: World) -> None:
    text = project.file.path.read_text()
    project.file.path.write_text(text.replace("smoke: {", "smoke: {on: box, "))
    result = project.run("doctor", "--smoke")
    assert result.code == 1
    assert "runs on each box, before its first cell" in result.err
