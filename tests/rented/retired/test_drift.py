"""See the package."""

from tests.rented.test_drift import *  # noqa: F403
