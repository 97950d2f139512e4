"""The adapter of boxes on this machine."""
