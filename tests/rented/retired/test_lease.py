"""See the package."""

from tests.rented.test_lease import *  # noqa: F403
