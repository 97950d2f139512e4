"""What is done on a host, once, before its queue starts."""
