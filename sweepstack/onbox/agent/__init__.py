"""Serves the files and processes of one box to the user's machine."""
