"""The adapter of machines that only a person can reach: a bundle goes there, a folder comes back."""
