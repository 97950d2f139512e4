"""The page of a person's own training code, played; and the page in docs/ fits what is played."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.engine.package_project import empty_project
from tests.week.own import NAME, STACK, own, prepare, tell
from tests.week.pages import Reading, assert_shown, without_answers

PAGE = "your-own-train-py.md"


def test_the_page_fits_its_script(tmp_path: Path) -> None:
    """All but what the commands said, which is read in `make proof`; and it takes no more than is promised."""
    folder = tmp_path / NAME
    read = Reading.of(folder, "Your own train.py")
    tell(read, folder / "stacks" / f"Pulumi.{STACK}.yaml")
    assert without_answers(PAGE) == read.page(), f"docs/{PAGE} is stale: python -m tests.week"
    to_verified = [command for command in read.typed if "results" not in command]
    assert len(to_verified) <= 12
    assert sum(line.startswith("```diff") for line in read.lines) == 2, "corrections"


@pytest.mark.engine
@pytest.mark.torch
@pytest.mark.proof  # above: that the page fits; the loop of a wheel: tests/engine/test_installed.py
def test_played_as_the_page_shows(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Every command ends as it should, and each correction is the one that the product named."""
    if pytestconfig.getoption("--slice") is not None and find_spec("transformers") is None:
        pytest.skip("make test sets no Trainer up: scripts/setup --dev --torch --trainer")
    with empty_project(tmp_path, NAME) as project:
        prepare(project)
        play = own(project)
        assert_shown(PAGE, play)
        train = project.folder / "train.py"
        text = train.read_text().replace(
            "    train_dataset=data,\n", "    train_dataset=data,\n    callbacks=[Curve()],\n"
        )
        train.write_text("from curve import Curve\n" + text)
        project.env["SWEEPSTACK_OUT"] = str(tmp_path)
        done = project.run("python", "train.py", "--steps", "10")
        assert done.rc == 0, str(done)
        assert (tmp_path / "metrics.jsonl").read_text().startswith('{"step": 5, "loss": 0.')
