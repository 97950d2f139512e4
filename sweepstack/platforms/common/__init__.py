"""What several adapters share: HTTP, rate limits, one request for several callers at once."""
