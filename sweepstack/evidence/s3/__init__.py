"""Evidence in object storage."""
