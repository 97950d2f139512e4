"""What `import sweepstack` gives: a sweep to read, as plain values and as frames of pandas or polars."""
