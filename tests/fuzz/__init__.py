"""Whatever bytes come: a message of ours, and nothing damaged counts."""
