"""See the package."""

from tests.rented.test_interrupted import *  # noqa: F403
