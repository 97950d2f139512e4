"""Edits a stack file and leaves every other byte as it was."""
