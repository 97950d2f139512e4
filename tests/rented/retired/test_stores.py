"""See the package."""

from tests.rented.test_stores import *  # noqa: F403
