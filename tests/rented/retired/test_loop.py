"""See the package."""

from tests.rented.test_loop import *  # noqa: F403
