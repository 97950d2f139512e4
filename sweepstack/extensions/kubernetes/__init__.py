"""The adapter for clusters that run Kubernetes, reached through their API server."""

SDK = True
"""Whether it needs the vendor's SDK, which is an extra of the package: see `core.extras`."""
