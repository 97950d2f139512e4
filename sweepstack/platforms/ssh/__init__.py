"""The adapter of hosts that the user has, over SSH."""
