"""A person's shell on a box. This folder is sent alone, as an argument of a command."""
