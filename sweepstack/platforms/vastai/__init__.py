"""The adapter for vast.ai."""

SDK = True
"""Whether it needs the vendor's SDK, which is an extra of the package: see `core.extras`."""
