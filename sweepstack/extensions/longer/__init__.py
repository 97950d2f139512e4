"""Cells that begin where another one ended (`from` of `cells.add` and `cells.list`)."""
