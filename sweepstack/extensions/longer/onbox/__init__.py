"""Lays what a cell begins from into its folder of checkpoints, on the box."""
