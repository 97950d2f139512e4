from __future__ import annotations

from tests.unit.cli.conftest import world

__all__ = ["world"]
