"""Volumes that outlive sweeps: who uses one, and the check that may end it."""
