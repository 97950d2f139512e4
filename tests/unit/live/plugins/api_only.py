"""pytest plugin: no machine stands behind a simulated box, so that the API says it runs is enough."""

from sweepstack.platforms.common import reach_box

reach_box.ON = False
