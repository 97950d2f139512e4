"""Volumes that outlive sweeps: who used one, what of it is safe elsewhere, and the check that may end it."""
