"""The adapter of vast.ai."""
