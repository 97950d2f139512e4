from __future__ import annotations

from tests.onbox.conftest import make_box
from tests.unit.cli.conftest import world

__all__ = ["make_box", "world"]
