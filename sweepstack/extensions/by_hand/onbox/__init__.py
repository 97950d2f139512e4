"""What runs in a session that a person starts: it runs a bundle, and carries results out."""
