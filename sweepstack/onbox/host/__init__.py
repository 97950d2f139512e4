"""Keeps boxes as folders of a machine: this one, or one that is reached by SSH."""
