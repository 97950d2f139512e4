from __future__ import annotations

from tests.engine.conftest import make_stack
from tests.onbox.conftest import make_box
from tests.unit.cli.conftest import world
from tests.unit.provider.conftest import sweep

__all__ = ["make_box", "make_stack", "sweep", "world"]
