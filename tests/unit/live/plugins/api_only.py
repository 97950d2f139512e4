"""pytest plugin: no machine stands behind a simulated box, so the API's word that it runs is enough."""

from sweepstack.platforms.runpod.platform import RunpodPlatform
from sweepstack.platforms.vastai import create

RunpodPlatform._answers = lambda *_, **__: ""  # type: ignore[method-assign,assignment]
create.PROBE = False
