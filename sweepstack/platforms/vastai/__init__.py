"""The adapter for vast.ai."""

from sweepstack.platforms.common.keys import Key

KEY = Key("vastaiApiKey", "VAST_API_KEY", "vast.ai")

SDK = True
"""Whether it needs the vendor's SDK, which is an extra of the package: see `core.extras`."""
