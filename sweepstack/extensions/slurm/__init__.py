"""The adapter for clusters that run Slurm, reached through a login node."""
