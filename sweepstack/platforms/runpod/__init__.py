"""The adapter of RunPod."""
