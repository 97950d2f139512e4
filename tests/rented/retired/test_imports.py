"""See the package."""

from tests.rented.test_imports import *  # noqa: F403
