"""The adapter for Paperspace's API."""
