"""Pages: one self-contained HTML file with tables and plots, and what `sweepctl results --as html` puts into it."""
