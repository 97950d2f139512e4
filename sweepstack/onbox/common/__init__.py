"""What the agent, the host and this side share."""
