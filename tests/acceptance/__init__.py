"""The acceptance scenarios that need neither a platform's API nor SSH, each by its id, through what a user types."""
