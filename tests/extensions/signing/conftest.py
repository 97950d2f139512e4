"""The sweep of the tests of `teardown`."""

from __future__ import annotations

from tests.unit.teardown.conftest import nothing_is_flushed, situation, template

__all__ = ["nothing_is_flushed", "situation", "template"]
