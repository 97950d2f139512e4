"""Loaders of the formats that people write, and guesses at the lines of `artifacts`."""
