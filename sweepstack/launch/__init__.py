"""Gives cells to boxes: what is shipped, what is queued, and what moves."""
