"""Runs a box's queue as jobs of a Slurm cluster: on the login node, and on the nodes that compute."""
