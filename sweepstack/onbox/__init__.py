"""All that runs on another machine: Python 3.8 and the standard library."""
