"""Cells over several nodes: what the first node does to its peers, and what runs on them."""
