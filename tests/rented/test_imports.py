"""`pulumi preview` on the real engine: one platform's plugin imports no other platform's SDK."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.commands import ok
from tests.rented.world import rented
from tests.simulators.rental import stack_of, whole_rentals
from tests.unit.provider.test_imports import HEAVY, imported, sdk_of

FIRST, *OTHERS = whole_rentals()


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_imports.py
# Each adapter's imports: tests/unit/provider/test_imports.py.
@pytest.mark.parametrize("platform", [FIRST, *(pytest.param(other, marks=pytest.mark.proof) for other in OTHERS)])
def test_a_preview_brings_no_other_platforms_sdk(platform: str, tmp_path: Path) -> None:
    name = stack_of(platform)
    with rented(platform, tmp_path, name, machines=False) as world:
        launcher = world.stack.checkout / "sweepstack" / "provider" / "pulumi-resource-sweepstack"
        told = launcher.read_text()
        command = 'exec "$python" -P -m sweepstack.provider "$@"'
        assert told.count(command) == 1
        report = tmp_path / "imports"
        launcher.write_text(
            told.replace(command, f'exec "$python" -X importtime -P -m sweepstack.provider "$@" 2>>"{report}"')
        )
        ok(world.stack.run("pulumi", "stack", "init", name, "--non-interactive"))
        preview = ok(world.stack.pulumi("preview", timeout=180))
        assert "$" in preview.text, "the market was not asked"
    found = imported(report)
    assert {"sweepstack", "grpc"} <= found, "the list of imports is not one"
    assert found & HEAVY <= sdk_of(platform), sorted(found & HEAVY)
