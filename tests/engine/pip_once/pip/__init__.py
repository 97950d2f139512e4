"""Stands before pip on the path of the tests' commands: see `__main__`. pip itself is what is asked."""
