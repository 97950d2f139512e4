"""The version of sweepstack: the one place (the build, the plugin and the docs' addresses read it here)."""

VERSION = "0.1.0"
"""Three numbers, as Python and the engine both read them."""
