"""A notebook server on a box, as long as the command of a person runs."""
