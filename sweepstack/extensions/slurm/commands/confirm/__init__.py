"""What a person confirms of a cluster."""
