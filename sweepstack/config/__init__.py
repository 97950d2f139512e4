"""The stack config: its model, where each value stands in the file, and what is wrong with it."""
