"""The figures that this project promises, each against its named baseline: `make bench`."""
