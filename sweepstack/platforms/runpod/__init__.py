"""The adapter for RunPod."""
