"""What a release publishes, from the commit that is checked out; nothing is published."""
