"""One handler a resource type."""
