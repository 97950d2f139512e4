"""How to reach a box: read, write, fetch and run, by box-relative paths. One module a way of reaching."""
