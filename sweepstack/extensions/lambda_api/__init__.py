"""The adapter for Lambda's Cloud API."""
