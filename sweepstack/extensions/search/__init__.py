"""Draws cells from ranges while a sweep runs (`search:` of a stack file)."""
