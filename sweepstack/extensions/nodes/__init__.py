"""Cells over several nodes: the look at the nodes, the start and the end of their parts, what a stack may ask."""
