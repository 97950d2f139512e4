"""The version of sweepstack, for the build, the plugin and the addresses of the docs."""

VERSION = "0.1.0"
"""Three numbers, as Python and the engine both read them."""
