"""The adapter for RunPod."""

SDK = True
"""Whether it needs the vendor's SDK, which is an extra of the package: see `core.extras`."""
