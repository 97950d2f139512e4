"""The same examples every time; `pytest tests/fuzz --hypothesis-profile=deep` looks for new ones."""

from __future__ import annotations

import sys

from hypothesis import HealthCheck, settings

CALM = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much]

settings.register_profile("suite", derandomize=True, deadline=None, max_examples=25, suppress_health_check=CALM)
settings.register_profile("deep", deadline=None, max_examples=3000, suppress_health_check=CALM)
if not any(word.startswith("--hypothesis-profile") for word in sys.argv):
    settings.load_profile("suite")
