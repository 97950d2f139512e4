"""See the package."""

from tests.rented.test_imported import *  # noqa: F403
