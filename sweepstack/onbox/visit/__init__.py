"""A person on a box: sent alone, as an argument."""
