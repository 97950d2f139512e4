"""See the package."""

from tests.rented.test_probe import *  # noqa: F403
