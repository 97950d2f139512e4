"""pytest plugin: what does not end at once is given up soon."""

from tests.live import run

run.GONE_SECONDS = 20.0  # at the pace of these tests: two seconds
