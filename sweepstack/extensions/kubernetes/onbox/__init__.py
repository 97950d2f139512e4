"""What the pods of a box run: Python 3.8 and the standard library."""
