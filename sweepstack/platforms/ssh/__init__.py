"""The adapter for the user's own hosts, reached over SSH."""
