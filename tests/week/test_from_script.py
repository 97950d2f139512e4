"""The pages of own scripts, played; and the pages in docs/ fit what is played."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.engine.package_project import empty_project
from tests.week.from_script import OWN, TO_VERIFIED
from tests.week.pages import Reading, assert_shown, without_answers


@pytest.mark.parametrize("page", OWN)
def test_the_page_fits_its_script(page: str, tmp_path: Path) -> None:
    """All but what the commands said, which is read in `make proof`; and it takes no more than is promised."""
    own = OWN[page]
    folder = tmp_path / own.name
    read = Reading.of(folder, own.title)
    own.tell(read, folder / "stacks" / f"Pulumi.{own.name}.yaml")
    assert without_answers(page) == read.page(), f"docs/{page} is stale: python -m tests.week {page}"
    to_verified = read.typed[: read.typed.index(f"sweepctl verify --stack {own.name}") + 1]
    assert len(to_verified) <= TO_VERIFIED


@pytest.mark.engine
@pytest.mark.torch
@pytest.mark.proof  # what `init` writes of a script: tests/extensions/importers/test_script.py
@pytest.mark.parametrize("page", OWN)
def test_played_as_the_page_shows(page: str, tmp_path: Path) -> None:
    """Every command ends as it should, and the script is as it was."""
    if find_spec("transformers") is None:
        pytest.skip("make test sets no Trainer up: scripts/setup --dev --torch --trainer")
    own = OWN[page]
    with empty_project(tmp_path, own.name) as project:
        own.prepare(project)
        text = (project.folder / "train.py").read_text()
        assert_shown(page, own.play(project))
        assert (project.folder / "train.py").read_text() == text
