"""See the package. One file for each module whose tests it plays: fixtures are each module's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rented import world
from tests.simulators.rental import whole_rentals


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """None of it is in `make test`, where tests/rented/test_loop.py has GraphQL retire in its middle. What another
    platform rents has no such interface, and is played beside."""
    others = [platform for platform in whole_rentals() if not world.has_older_interface(platform)]
    here = [item for item in items if "tests/rented/retired/" in item.nodeid]
    for item in here:
        item.add_marker(pytest.mark.proof)
        params = getattr(item, "callspec", None)
        if params is not None and any(value in others for value in params.params.values()):
            items.remove(item)


@pytest.fixture(scope="module", autouse=True)
def without_graphql() -> Iterator[None]:
    """Platforms that open meanwhile have retired it."""
    world.RETIRED = True
    yield
    world.RETIRED = False
