"""The channel over SSH: its connections, keys, routes and options."""
