"""The adapter for vast.ai."""
