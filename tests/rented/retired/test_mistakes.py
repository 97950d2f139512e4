"""See the package."""

from tests.rented.test_mistakes import *  # noqa: F403
