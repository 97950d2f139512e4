"""How to reach a box: read, write, fetch and run, by paths relative to the box."""
