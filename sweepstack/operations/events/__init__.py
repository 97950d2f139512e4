"""What happens to a sweep, told once to each place that the stack config names."""
