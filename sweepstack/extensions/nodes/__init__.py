"""Cells over several nodes: the look at the nodes, start and end of the parts, what a stack may ask."""
