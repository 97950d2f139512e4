"""The stack config: its model, the line of each value in the file, its mistakes, and edits of it."""
