"""The check that may end a box, and what it reads."""
