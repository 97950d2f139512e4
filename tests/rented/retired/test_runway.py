"""See the package."""

from tests.rented.test_runway import *  # noqa: F403
