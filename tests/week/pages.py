"""A page of docs/ against the play that it was made from."""

from __future__ import annotations

import re

from tests.engine.harness import ROOT
from tests.week.play import Play


def assert_shown(page: str, play: Play) -> None:
    """The page shows the commands that were typed, in their order. One that shows others is stale."""
    shown = re.findall(r"^```console\n\$ (.+)$", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    assert shown == play.typed, f"docs/{page} is stale: python -m tests.week"
