"""Evidence: what was sealed, what was pulled, what verifying found, and the records around it."""
