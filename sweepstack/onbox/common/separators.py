"""Which metrics files are tables of text, for who watches them on a box and who reads them here."""

from __future__ import annotations


def separator_of(file: str) -> str:
    """What separates the columns of a table, by the file's name: a comma of a CSV, a tab of a TSV. "" for no table."""
    name = file.lower()
    return "," if name.endswith(".csv") else "\t" if name.endswith(".tsv") else ""
