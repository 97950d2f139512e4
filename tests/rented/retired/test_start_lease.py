"""See the package."""

from tests.rented.test_start_lease import *  # noqa: F403
