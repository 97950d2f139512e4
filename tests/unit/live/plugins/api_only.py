"""pytest plugin: no machine stands behind a simulated box, so that the API says it runs is enough."""

from sweepstack.platforms.common import probe

probe.ON = False
