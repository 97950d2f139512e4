"""The handlers, one module for each resource type, and what they share."""
