"""Pages: one self-contained HTML file with tables and plots, and what `sweepctl report` puts into it."""
