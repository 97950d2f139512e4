"""Boxes as folders of a machine, here or reached over SSH; and the interface of all platforms."""
