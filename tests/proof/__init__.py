"""What is exhaustive: `make proof` plays all of it, `pytest --slice` half a minute of it, another at each commit."""
