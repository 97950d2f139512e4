"""The page of a sweep: one HTML file with plots and tables (`sweepctl results --as html`)."""
