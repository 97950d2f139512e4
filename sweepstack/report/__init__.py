"""HTML pages of their own with tables and plots, and what `results --as html` puts into one."""
