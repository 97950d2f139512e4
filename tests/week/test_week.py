"""The tutorial and the week, played; and the pages in docs/ show the same commands."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.engine.conftest import make_stack as make_stack
from tests.engine.harness import ROOT, Stack
from tests.week.play import Play
from tests.week.script import week
from tests.week.tutorial import tutorial


@pytest.mark.engine
@pytest.mark.parametrize(
    ("page", "play"),
    [
        pytest.param("tutorial.md", tutorial, id="tutorial", marks=pytest.mark.xdist_group("tutorial")),
        pytest.param("week.md", week, id="week", marks=pytest.mark.xdist_group("week")),
    ],
)
def test_played_as_the_page_shows(
    page: str, play: Callable[[Callable[..., Stack]], Play], make_stack: Callable[..., Stack]
) -> None:
    """Every command ends as it should and names the one after it. A page that shows others is stale."""
    typed = play(make_stack).typed
    shown = re.findall(r"^```console\n\$ (.+)$", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    assert shown == typed, f"docs/{page} is stale: python -m tests.week"
