"""The adapter for RunPod."""

from sweepstack.platforms.common.keys import Key

KEY = Key("runpodApiKey", "RUNPOD_API_KEY", "RunPod")

SDK = True
"""Whether it needs the vendor's SDK, which is an extra of the package: see `core.extras`."""
