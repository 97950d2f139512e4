"""What is exhaustive: `make proof` plays all of it, `make test` half a minute of it, another one at each commit."""
